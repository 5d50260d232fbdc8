# Man pages, shell completion, and the Debian package:
#
#   cmake -S . -B build-deb -G Ninja -DCMAKE_INSTALL_PREFIX=/usr \
#     -DINGERO_BUILD_TESTS=OFF -DINGERO_BUILD_BENCH=OFF
#   ninja -C build-deb && (cd build-deb && cpack -G DEB)
include(GNUInstallDirs)
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_FOUND)
  ingero_left_out("man pages and shell completion: no python3")
else()
  set(pages ${CMAKE_BINARY_DIR}/share)
  set(help_of --ingero $<TARGET_FILE:ingero>)
  set(help_from ingero)
  if(TARGET ingero-kprobe)
    list(APPEND help_of --kprobe $<TARGET_FILE:ingero-kprobe>)
    list(APPEND help_from ingero-kprobe)
  endif()
  add_custom_command(OUTPUT ${pages}/man/man1/ingero.1
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/help_pages.py
      ${help_of} --costs ${CMAKE_SOURCE_DIR}/docs/man_overhead.txt
      --out ${pages}
    DEPENDS ${help_from} ${CMAKE_SOURCE_DIR}/cmake/help_pages.py
      ${CMAKE_SOURCE_DIR}/docs/man_overhead.txt
    COMMENT "Man pages and shell completion" VERBATIM)
  add_custom_target(ingero_pages ALL DEPENDS ${pages}/man/man1/ingero.1)
  install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${pages}/bash-completion ${pages}/zsh
    DESTINATION ${CMAKE_INSTALL_DATADIR})
  install(DIRECTORY ${pages}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_PACKAGE_NAME ingero)
set(CPACK_PACKAGE_VENDOR "The ingero authors")
set(CPACK_PACKAGE_CONTACT "The ingero authors <maintainers@users.noreply.a-seed-1a4e42b2.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tell why a GPU is starved of work")
set(CPACK_PACKAGE_DESCRIPTION
"ingero records CUDA calls (a preloaded library) and the Linux scheduler
(eBPF) on one clock, joins them, and names the cause of an idle GPU with the
time that it cost and what to change.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/triggers)
file(WRITE ${CMAKE_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/debian_files.cmake)
include(CPack)
