# For each component fenceguard-NAME.pc, from what its target links: nothing of it is written twice. The libraries are
# static, so what they need is required of everybody.

# fenceguard_describe_library(TARGET MODULE LIBRARY FILE): of a library that a component links, how pkg-config names it,
# or else what the linker is told; and a file of the package that it comes in. All are empty for what needs no mention.
function(fenceguard_describe_library target module library file)
  set(modules fmt::fmt fmt SQLite::SQLite3 sqlite3 OpenSSL::Crypto libcrypto CURL::libcurl libcurl)
  set(name)
  set(linked)
  set(path)
  list(FIND modules ${target} at)
  if(at GREATER -1)
    math(EXPR at "${at} + 1")
    list(GET modules ${at} name)
  elseif(target MATCHES "^PkgConfig::(.+)$")
    set(name ${CMAKE_MATCH_1})
  elseif(target STREQUAL "Threads::Threads")
    set(linked -pthread)
  elseif(target STREQUAL "ZooKeeper::zookeeper_mt")
    set(linked -lzookeeper_mt)
    set(path "${ZooKeeper_LIBRARY}")
  elseif(target MATCHES "^Boost::(.+)$")
    set(linked -lboost_${CMAKE_MATCH_1})
    get_target_property(path ${target} LOCATION)
    string(REGEX REPLACE "[.]so[.0-9]*$" ".so" path "${path}")
  else()
    message(FATAL_ERROR "cmake/FenceguardPkgConfig.cmake does not know how pkg-config names ${target}")
  endif()
  if(name)
    find_package(PkgConfig)
    if(PkgConfig_FOUND)
      pkg_get_variable(folder ${name} pcfiledir)
      set(path "${folder}/${name}.pc")
    endif()
  endif()
  set(${module} "${name}" PARENT_SCOPE)
  set(${library} "${linked}" PARENT_SCOPE)
  set(${file} "${path}" PARENT_SCOPE)
endfunction()

# The files of the packages that the components need, for the packages of this project.
set_property(GLOBAL PROPERTY FENCEGUARD_LINKED_FILES "")

# fenceguard_write_module(COMPONENT)
function(fenceguard_write_module component)
  set(modules)
  set(libraries)
  get_target_property(linked fenceguard_${component} LINK_LIBRARIES)
  foreach(target IN LISTS linked)
    if(target MATCHES "BUILD_INTERFACE")
      continue()
    elseif(target MATCHES "^fenceguard::(.+)$")
      list(APPEND modules fenceguard-${CMAKE_MATCH_1})
      continue()
    endif()
    fenceguard_describe_library(${target} module library file)
    list(APPEND modules ${module})
    list(APPEND libraries ${library})
    set_property(GLOBAL APPEND PROPERTY FENCEGUARD_LINKED_FILES ${file})
  endforeach()
  list(JOIN modules " " modules)
  list(JOIN libraries " " libraries)
  file(RELATIVE_PATH prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  file(CONFIGURE OUTPUT fenceguard-${component}.pc @ONLY CONTENT [=[
prefix=${pcfiledir}/@prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: fenceguard-@component@
Description: @PROJECT_DESCRIPTION@ (@component@)
Version: @PROJECT_VERSION@
Requires: @modules@
Cflags: -I${includedir} -I${includedir}/fenceguard
Libs: -L${libdir} -lfenceguard_@component@ @libraries@
]=])
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fenceguard-${component}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()

get_property(components GLOBAL PROPERTY FENCEGUARD_COMPONENTS)
foreach(component IN LISTS components)
  fenceguard_write_module(${component})
endforeach()
