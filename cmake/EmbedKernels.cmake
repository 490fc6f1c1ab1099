# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=kernels.c -DKERNELS=a.cl;b.cl -P EmbedKernels.cmake: writes a C file that holds the texts.
set(arrays "")
set(rows "")
list(SORT KERNELS)
foreach(path IN LISTS KERNELS)
  get_filename_component(name ${path} NAME)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const unsigned char ${id}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${name}\", ${id}, sizeof ${id}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"backend/opencl/program.h\"

${arrays}
const ag_cl_source ag_cl_sources[] = {
${rows}};
const size_t ag_cl_n_sources = sizeof ag_cl_sources / sizeof ag_cl_sources[0];
")
