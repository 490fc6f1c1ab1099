# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=page_files.c "-DFILES=a.html;b.js" -P EmbedPage.cmake: writes a C file that holds the files of the page, each
# with what tells one version of it from another.
set(arrays "")
set(rows "")
list(SORT FILES)
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${path} hex HEX)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 24 tag)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const unsigned char ${id}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"\\\"${tag}\\\"\", ${id}, sizeof ${id}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"serve/page/page_files.h\"

${arrays}
const page_file page_files[] = {
${rows}};
const size_t n_page_files = sizeof page_files / sizeof page_files[0];
")
