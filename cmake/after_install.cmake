# Runs last in `cmake --install`: makes LD_PRELOAD=libingero_cuda.so, without a
# path, find the library, or says what is missing for that.
if(NOT "$ENV{DESTDIR}" STREQUAL "")
  return()  # a package: its own scripts run ldconfig
endif()
find_program(INGERO_LDCONFIG ldconfig PATHS /sbin /usr/sbin)
set(libdir "${CMAKE_INSTALL_PREFIX}/${INGERO_INSTALL_LIBDIR}")
set(found FALSE)
if(INGERO_LDCONFIG)
  # Only root can; anyone else gets the message below.
  execute_process(COMMAND ${INGERO_LDCONFIG} OUTPUT_QUIET ERROR_QUIET)
  execute_process(COMMAND ${INGERO_LDCONFIG} -p OUTPUT_VARIABLE cache
    ERROR_QUIET)
  string(FIND "${cache}" "=> ${libdir}/libingero_cuda.so" at)
  if(at GREATER -1)
    set(found TRUE)
  endif()
endif()
if(NOT found)
  message(STATUS "ld.so does not search ${libdir}: before "
    "LD_PRELOAD=libingero_cuda.so, export LD_LIBRARY_PATH=${libdir}")
endif()
