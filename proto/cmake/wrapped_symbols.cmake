# SPDX-License-Identifier: Apache-2.0
# Replaces functions of a static library by the linker's --wrap: for users of TARGET, calls of SYMBOL go to __wrap_SYMBOL.

# Fails if the library's version does not have the symbols as --wrap needs them: defined in one of its object files and called
# from another. The linker accepts a symbol that nothing calls, and the replacement would then never run.
function(ddprun_check_wrapped_symbols package library)
  execute_process(COMMAND ${CMAKE_NM} ${library} OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  foreach(symbol IN LISTS ARGN)
    string(FIND "${symbols}" " T ${symbol}\n" defined)
    string(FIND "${symbols}" " U ${symbol}\n" called)
    if(defined EQUAL -1 OR called EQUAL -1)
      message(FATAL_ERROR "${package} does not fit ddprun: no object file of ${library} calls ${symbol} of another one, as the "
        "versions that ddprun knows do, so that the replacement in ddprun would not run. Adapt it to this version, or install another one.")
    endif()
  endforeach()
endfunction()

function(ddprun_wrap_symbols target package library)
  ddprun_check_wrapped_symbols(${package} ${library} ${ARGN})
  foreach(symbol IN LISTS ARGN)
    # Nothing names the file of the replacements.
    target_link_options(${target} INTERFACE LINKER:--wrap=${symbol} LINKER:--undefined=__wrap_${symbol})
  endforeach()
endfunction()
