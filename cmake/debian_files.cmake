# Run by cpack on the tree that it packs: what Debian's policy wants beside the
# installed files.
set(root ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
file(GLOB_RECURSE pages ${root}/share/man/*.1 ${root}/share/man/*.8)
foreach(page IN LISTS pages)
  execute_process(COMMAND gzip -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
set(doc ${root}/share/doc/ingero)
file(MAKE_DIRECTORY ${doc})
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog
"ingero (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
execute_process(COMMAND gzip -9nf ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${doc}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ingero

Files: *
Copyright: 2026 the ingero authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

Files: bpf/* wire/*
Copyright: 2026 the ingero authors
License: GPL-2.0-only or BSD-2-clause
 On Debian systems the text of the GPL is in
 /usr/share/common-licenses/GPL-2.
")
# The libraries are preloaded or opened by name: nothing links them, so they
# have no SONAME. cpack writes the call of ldconfig itself.
file(MAKE_DIRECTORY ${root}/share/lintian/overrides)
file(WRITE ${root}/share/lintian/overrides/ingero
"ingero: package-name-doesnt-match-sonames *
ingero: shared-library-lacks-version *
ingero: shared-library-lacks-prerequisites *
ingero: maintscript-calls-ldconfig *
")
