# cuda_api.def against CUDA's own headers and libraries. The wheels lie where
# tests/run.sh puts them; without them these tests fail.
set(wheels ${CMAKE_BINARY_DIR}/cuda_wheels)

foreach(test IN ITEMS api_coverage_test api_meaning_test)
  add_test(NAME ${test}
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/${test}.py
      --wheels ${wheels})
  set_tests_properties(${test} PROPERTIES LABELS unit TIMEOUT 600)
endforeach()

# Every function called, and each word of each record compared.
if(TARGET ingero_cuda)
  foreach(group IN ITEMS 0 11 12 13)
    add_executable(api_words_${group} api_words.c)
    target_compile_definitions(api_words_${group} PRIVATE GROUP=${group})
    target_compile_options(api_words_${group} PRIVATE -w -O0 -g0)
    target_include_directories(api_words_${group} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(api_words_${group} PRIVATE whole_api_lib_${group})
  endforeach()
  add_test(NAME api_words_test
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/api_words_test.py
      --shim $<TARGET_FILE:ingero_cuda> --bin ${CMAKE_CURRENT_BINARY_DIR}
      --lib ${dir})
  set_tests_properties(api_words_test PROPERTIES LABELS unit TIMEOUT 600)
endif()
