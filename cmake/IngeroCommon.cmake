# Flags that all C++ parts share, and the list of what is left out.

add_library(ingero_options INTERFACE)
target_include_directories(ingero_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(ingero_options INTERFACE
  -Wall -Wextra -fvisibility=hidden
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<BOOL:${INGERO_WERROR}>:-Werror>)
target_compile_definitions(ingero_options INTERFACE
  INGERO_VERSION="${PROJECT_VERSION}")

set_property(GLOBAL PROPERTY INGERO_LEFT_OUT "")
# ingero_left_out("ingero-kprobe: clang not found (apt install clang)")
function(ingero_left_out what)
  set_property(GLOBAL APPEND PROPERTY INGERO_LEFT_OUT "${what}")
endfunction()
function(ingero_print_left_out)
  get_property(items GLOBAL PROPERTY INGERO_LEFT_OUT)
  foreach(item IN LISTS items)
    message(STATUS "Left out: ${item}")
  endforeach()
endfunction()

# ingero_test(name SOURCES a.cc LIBS x y LABELS unit): a GoogleTest binary.
function(ingero_test name)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ingero_options ${T_LIBS}
    GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 300)
endfunction()
