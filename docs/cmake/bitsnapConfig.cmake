# find_package(bitsnap) has the targets
#   bitsnap::bitsnap                   the headers: one file of a program defines BITSNAP_IMPLEMENTATION
#   bitsnap::static, bitsnap::shared   the library, if it was made before bitsnap was installed
if(TARGET bitsnap::bitsnap)
  return()
endif()
add_library(bitsnap::bitsnap INTERFACE IMPORTED)
set_target_properties(bitsnap::bitsnap PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "@INCLUDEDIR@")
if(EXISTS "@LIBDIR@/libbitsnap.a" AND EXISTS "@LIBDIR@/libbitsnap.so.1")
  add_library(bitsnap::static STATIC IMPORTED)
  set_target_properties(bitsnap::static PROPERTIES
    IMPORTED_LOCATION "@LIBDIR@/libbitsnap.a" INTERFACE_LINK_LIBRARIES bitsnap::bitsnap)
  add_library(bitsnap::shared SHARED IMPORTED)
  set_target_properties(bitsnap::shared PROPERTIES
    IMPORTED_LOCATION "@LIBDIR@/libbitsnap.so.1" IMPORTED_SONAME libbitsnap.so.1
    INTERFACE_COMPILE_DEFINITIONS BITSNAP_EXPORT INTERFACE_LINK_LIBRARIES bitsnap::bitsnap)
endif()
