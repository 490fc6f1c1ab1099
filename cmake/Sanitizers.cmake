# SPDX-License-Identifier: Apache-2.0
# AG_SANITIZE=address,undefined builds everything of ours with these sanitizers; a finding ends the program.
if(AG_SANITIZE)
  target_compile_options(ag_flags INTERFACE
    -fsanitize=${AG_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ag_flags INTERFACE -fsanitize=${AG_SANITIZE})
endif()
