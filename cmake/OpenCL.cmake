# SPDX-License-Identifier: Apache-2.0
# The headers of OpenCL, which any compiler for any machine may use; the library is found at run time.
if(AG_OPENCL)
  find_path(AG_OPENCL_INCLUDE_DIR CL/cl.h NO_CMAKE_FIND_ROOT_PATH DOC "Folder that holds CL/cl.h")
  if(NOT AG_OPENCL_INCLUDE_DIR)
    message(FATAL_ERROR "CL/cl.h is missing; scripts/setup.sh installs it (Debian: opencl-c-headers), \
-DAG_OPENCL=OFF builds without the OpenCL backend")
  endif()
  # A folder with nothing else in it: a cross compiler must not see the other headers of this system.
  set(AG_OPENCL_HEADERS ${PROJECT_BINARY_DIR}/opencl-headers)
  file(MAKE_DIRECTORY ${AG_OPENCL_HEADERS})
  file(CREATE_LINK ${AG_OPENCL_INCLUDE_DIR}/CL ${AG_OPENCL_HEADERS}/CL SYMBOLIC)
endif()
