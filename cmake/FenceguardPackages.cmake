# The service, and what cpack makes of an installation below /usr (the preset 'package'): the Debian packages fenceguard,
# which is the program as a service, fenceguard-demo and libfenceguard-dev.

# Below /usr the configuration is in /etc, as the file system's hierarchy wants it.
set(config_folder "${CMAKE_INSTALL_SYSCONFDIR}/fenceguard")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(config_folder /etc/fenceguard)
endif()
cmake_path(ABSOLUTE_PATH config_folder BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE unit_config_folder)
set(packaging "${PROJECT_SOURCE_DIR}/packaging")
set(made "${PROJECT_BINARY_DIR}/packaging")

configure_file("${packaging}/fenceguard.service.in" "${made}/fenceguard.service" @ONLY)
install(FILES "${made}/fenceguard.service" DESTINATION lib/systemd/system COMPONENT program)
install(FILES "${packaging}/sysusers.conf" DESTINATION lib/sysusers.d RENAME fenceguard.conf COMPONENT program)
install(FILES "${PROJECT_BINARY_DIR}/reference/fenceguard.ini" DESTINATION "${config_folder}" COMPONENT program)
install(DIRECTORY DESTINATION "${config_folder}/credentials" COMPONENT program
        DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  return()
endif()

# Who makes the packages names himself: -DCPACK_PACKAGE_CONTACT="NAME <ADDRESS>".
set(CPACK_PACKAGE_CONTACT "The fenceguard authors <fenceguard@example.invalid>" CACHE STRING "The maintainer of the packages")

# The changelog says no more than which version it is: NEWS has the rest.
find_program(GZIP_PROGRAM gzip REQUIRED)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(component_of_fenceguard program)
set(component_of_fenceguard-demo demo)
set(component_of_libfenceguard-dev development)
foreach(package fenceguard fenceguard-demo libfenceguard-dev)
  set(component ${component_of_${package}})
  file(CONFIGURE OUTPUT "${made}/${package}/changelog" @ONLY CONTENT [=[
@package@ (@PROJECT_VERSION@) stable; urgency=medium

  * Version @PROJECT_VERSION@: what changed is in NEWS.gz.

 -- @CPACK_PACKAGE_CONTACT@  @date@
]=])
  file(COPY_FILE "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${made}/${package}/NEWS")
  execute_process(COMMAND "${GZIP_PROGRAM}" -9nf changelog NEWS WORKING_DIRECTORY "${made}/${package}" COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${made}/${package}/changelog.gz" "${made}/${package}/NEWS.gz" "${packaging}/debian/copyright"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}" COMPONENT ${component})
  install(FILES "${packaging}/debian/${package}.lintian-overrides" DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides"
          RENAME ${package} COMPONENT ${component})
endforeach()

# The Debian packages in which the libraries came that the components are linked with: what find_package and pkg-config
# look for is in them.
get_property(files GLOBAL PROPERTY FENCEGUARD_LINKED_FILES)
list(REMOVE_DUPLICATES files)
execute_process(COMMAND dpkg-query --search ${files} OUTPUT_VARIABLE owners OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "(:[a-z0-9]+)?: [^\n]*" "" owners "${owners}")
string(REPLACE "\n" ";" owners "${owners}")
list(APPEND owners pkgconf)
list(SORT owners)
list(REMOVE_DUPLICATES owners)
list(JOIN owners ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)

set(CPACK_GENERATOR DEB)
# Each package has its own; with one for all, theirs would stand behind it.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program demo development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME fenceguard)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
# Its user is made by systemd-sysusers, which has a package of its own for places without systemd; kill(1) reloads it.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers, procps")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS fenceguard-demo)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA "${packaging}/debian/postinst" "${packaging}/debian/prerm"
    "${packaging}/debian/postrm" "${packaging}/debian/conffiles")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "keeps stale writers out of storage by fencing tokens
Every grant of a lock carries a rising number, every write carries that
number, and the guard refuses whatever is lower than the highest it has
seen: a client that was paused past its lease can no longer overwrite its
successor.

This package has the program fenceguard, which grants leases and stands in
front of data of its own or of any HTTP storage, as a service of systemd.")
set(CPACK_DEBIAN_DEMO_PACKAGE_NAME fenceguard-demo)
set(CPACK_DEBIAN_DEMO_PACKAGE_SECTION net)
set(CPACK_DEBIAN_DEMO_PACKAGE_SHLIBDEPS ON)
# It starts the program, whose words it must know. Real servers are for the scenarios of their products.
set(CPACK_DEBIAN_DEMO_PACKAGE_DEPENDS "fenceguard (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEMO_PACKAGE_SUGGESTS
    "redis-server, redis-tools, postgresql-client, default-jre-headless, libzookeeper-java, libslf4j-java, etcd-server")
set(CPACK_DEBIAN_DEMO_DESCRIPTION "keeps stale writers out of storage (demonstrations)
Shows with real processes how a client that lost its lock overwrites what its
successor wrote, and how the check of fencing tokens refuses it.

This package has the program that 'fenceguard demo' starts.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfenceguard-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "keeps stale writers out of storage (development files)
The check of fencing tokens for the transactions of a C++20 program itself,
on SQLite, PostgreSQL, MariaDB, Redis, ZooKeeper and etcd; and leases from each.

This package has the headers, the static libraries, and the files by which
CMake and pkg-config find them.")
include(CPack)
