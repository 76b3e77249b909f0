# What an installation says of the commands, which scripts/reference makes of the binary's own --help: man pages,
# completions for three shells, and the example configuration.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_FOUND)
  message(STATUS "Man pages, completions and the example configuration are left out: Python 3 was not found")
  return()
endif()

set(reference "${PROJECT_BINARY_DIR}/reference")
set(scripts scripts/settings.py)
foreach(name __main__ completion man_pages program)
  list(APPEND scripts scripts/reference/${name}.py)
endforeach()
# The folder is made anew, so that nothing stays of a command that there is no more.
add_custom_command(OUTPUT "${reference}/fenceguard.ini"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${reference}"
  COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/scripts/reference" $<TARGET_FILE:fenceguard> "${reference}"
  DEPENDS fenceguard fenceguard_demo ${scripts}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM)
add_custom_target(fenceguard_reference ALL DEPENDS "${reference}/fenceguard.ini")
add_dependencies(fenceguard_installed fenceguard_reference)
set_property(TARGET fenceguard_installed APPEND PROPERTY FENCEGUARD_FILES "${reference}/fenceguard.ini")

set(zsh_folder "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(zsh_folder "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions")
endif()
install(DIRECTORY "${reference}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}" COMPONENT program
        PATTERN fenceguard-demo.1.gz EXCLUDE)
install(FILES "${reference}/man1/fenceguard-demo.1.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT demo)
install(DIRECTORY "${reference}/bash/" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT program)
install(DIRECTORY "${reference}/zsh/" DESTINATION "${zsh_folder}" COMPONENT program)
install(DIRECTORY "${reference}/fish/" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT program)
