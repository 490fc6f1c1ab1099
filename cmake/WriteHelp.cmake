# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions, which the program AG_PROGRAM writes from its tables of options, in directories of AG_HELP as
# they are installed.
function(ag_write_help file)
  get_filename_component(directory ${AG_HELP}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${directory})
  execute_process(COMMAND ${AG_PROGRAM} ${ARGN} OUTPUT_FILE ${AG_HELP}/${file} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${AG_PROGRAM} ${ARGN}: ${result}")
  endif()
endfunction()

ag_write_help(commands --help=commands)
file(STRINGS ${AG_HELP}/commands commands)
ag_write_help(man/man1/antigravity.1 --help=man)
foreach(command IN LISTS commands)
  string(REPLACE " " "-" name ${command})
  string(REPLACE " " ";" words ${command})
  ag_write_help(man/man1/antigravity-${name}.1 --help=man ${words})
endforeach()
ag_write_help(share/bash-completion/completions/antigravity --help=bash)
ag_write_help(share/zsh/site-functions/_antigravity --help=zsh)
ag_write_help(share/fish/vendor_completions.d/antigravity.fish --help=fish)
