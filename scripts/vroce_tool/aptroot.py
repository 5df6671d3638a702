# SPDX-License-Identifier: GPL-2.0-or-later
"""A private apt root that reads Debian 13's index and leaves the host's alone.

The mirrors are those of the machine's own apt configuration, with the suite
replaced; apt's proxies, certificates and passwords apply as they do there.
"""

import getpass

from . import util
from .util import UserError, cache_dir, publish, run, say, scratch

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
REFRESH_HINT = ("the mirror may be in the middle of an update: try again "
                "later, with 'vroce setup --refresh'")


def _mirrors():
    """The (archive, security) URIs that this machine installs Debian from."""
    form = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    targets = run(["apt-get", "indextargets", "--format", form,
                   "Created-By: Packages"], what="reading apt's configuration")
    found = {}
    for line in targets.splitlines():
        origin, label, component, uri = line.split("|", 3)
        if (origin, component) == ("Debian", "main") and \
                not uri.startswith("cdrom:"):
            found.setdefault(label, uri)
    if "Debian" not in found:
        raise UserError("no Debian mirror in this machine's apt "
                        "configuration; run 'apt-get update' and see that "
                        "'apt-cache policy' lists an archive with o=Debian")
    return found["Debian"], found.get("Debian-Security")


def sources_list():
    """The text of a sources.list for Debian 13 from this machine's mirrors."""
    archive, security = _mirrors()
    entries = [(archive, SUITE), (archive, f"{SUITE}-updates")]
    if security:
        entries.append((security, f"{SUITE}-security"))
    return "".join(f"{kind} [signed-by={KEYRING}] {uri} {suite} main\n"
                   for uri, suite in entries for kind in ("deb", "deb-src"))


def proxy_options():
    """The host's apt proxies, as apt options for use inside another root."""
    dump = run(["apt-config", "dump"], what="reading apt's configuration")
    return [line for line in dump.splitlines()
            if line.lower().startswith("acquire::") and
            "proxy" in line.split()[0].lower()]


class AptRoot:
    """Debian 13's package index, and what is fetched by it.

    Sources stay as they are once fetched, so that a set-up is repeatable and
    works without a network; refresh=True takes what the mirror has now.
    """

    def __init__(self, refresh=False):
        self.dir = cache_dir() / "apt"
        self.sources = cache_dir() / "src"
        self.refresh = refresh
        self.ready = False

    @property
    def sources_file(self):
        return self.dir / "sources.list"

    def prepare(self):
        """Create the root and read the mirror's index, once in this process."""
        with util.lock("apt"):
            if self.ready:
                return
            for name in ("lists/partial", "archives/partial", "cache"):
                (self.dir / name).mkdir(parents=True, exist_ok=True)
            (self.dir / "status").touch()
            self.sources_file.write_text(sources_list())
            (self.dir / "apt.conf").write_text(
                f'Dir::Etc::sourcelist "{self.sources_file}";\n'
                'Dir::Etc::sourceparts "/dev/null";\n'
                'Dir::Etc::preferences "/dev/null";\n'
                'Dir::Etc::preferencesparts "/dev/null";\n'
                f'Dir::State "{self.dir}";\n'
                f'Dir::State::status "{self.dir}/status";\n'
                f'Dir::Cache "{self.dir}/cache";\n'
                f'Dir::Cache::archives "{self.dir}/archives";\n'
                # Files of the cache need not be readable for apt's own user.
                f'APT::Sandbox::User "{getpass.getuser()}";\n')
            self.apt("apt-get", "-q", "update",
                     what=f"reading the index of Debian's suite {SUITE}",
                     hint="check the network, and that the mirror of this "
                     f"machine's apt configuration carries {SUITE}")
            self.ready = True

    def apt(self, *command, **options):
        """run() a program of apt on the private root."""
        return run(command, env={"APT_CONFIG": self.dir / "apt.conf"},
                   **options)

    def unpack(self, packages, into):
        """Unpack binary packages, without their dependencies, into a folder."""
        self.prepare()
        with scratch("debs") as folder:
            for package in packages:
                _first_that_works(f"the package {package}", [
                    self._download_attempt(spec, folder)
                    for spec in self._versions(package, "Packages")])
            for deb in folder.glob("*.deb"):
                run(["dpkg-deb", "-x", deb, into])

    def source(self, package, version=None):
        """Return the folder of a package's unpacked, patched source.

        It is src/PACKAGE, a link to the version that was fetched.  version
        asks for exactly that one.
        """
        link = self.sources / package
        have = link.resolve().name if link.exists() else None
        if have and (f"{package}-{version}" == have if version
                     else not self.refresh):
            return link.resolve()
        self.prepare()
        wanted = [f"{package}={version}"] if version \
            else self._versions(package, "Sources")
        with scratch("source") as folder:
            _first_that_works(
                f"the source package {package}",
                [self._source_attempt(spec, options, folder)
                 for spec in wanted
                 for options in ((["--only-source"],),
                                 (["--tar-only"], ["--diff-only"]))])
            tree = _unpack_source(folder, package)
            final = self.sources / tree.name
            publish(tree, final)
        new = link.with_name(f".{package}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(final.name)
        new.replace(link)
        return final

    def _source_attempt(self, spec, options, folder):
        """An attempt for _first_that_works(): one apt-get for each option.

        The .dsc is the file that a mirror lacks most often, and the tarballs
        do without it.
        """
        def attempt():
            for option in options:
                self.apt("apt-get", "-q", "source", "--download-only",
                         *option, spec, cwd=folder)
        name = " ".join(sum(options, []))
        return f"apt-get source {name} {spec}", attempt

    def _download_attempt(self, spec, folder):
        def attempt():
            self.apt("apt-get", "-q", "download", spec, cwd=folder)
        return f"apt-get download {spec}", attempt

    def _versions(self, package, kind):
        """PACKAGE, then PACKAGE=VERSION for the versions that the index has."""
        table = self.apt("apt-cache", "madison", package)
        rows = [line.split("|") for line in table.splitlines()]
        versions = [row[1].strip() for row in rows
                    if row[2].strip().endswith(kind)]
        if not versions:
            raise UserError(f"Debian's suite {SUITE} has no {kind} entry for "
                            f"{package}; {REFRESH_HINT}")
        return [package] + [f"{package}={version}" for version in
                            dict.fromkeys(versions)][:4]


def _first_that_works(what, attempts):
    """Make (description, function) attempts until one succeeds.

    The error of the last one names all that were tried.
    """
    tried = []
    for description, attempt in attempts:
        try:
            attempt()
            if tried:
                say(f"{what} came by '{description}'")
            return
        except UserError as error:
            reasons = [line.strip(" |") for line in str(error).splitlines()
                       if "E: " in line]
            tried.append(f"  {description}: "
                         f"{reasons[0] if reasons else error}")
    raise UserError(f"cannot fetch {what}; tried\n" + "\n".join(tried) +
                    f"\n  {REFRESH_HINT}")


def _unpack_source(folder, package):
    """Unpack what a source attempt left in folder; return the patched tree."""
    tarballs = {kind: sorted(folder.glob(f"{package}_*.{kind}.tar.*"))
                for kind in ("orig", "debian")}
    descriptions = sorted(folder.glob(f"{package}_*.dsc"))
    if descriptions:
        version = descriptions[-1].stem.split("_")[1]
        tree = folder / f"{package}-{version}"
        run(["dpkg-source", "--no-check", "-x", descriptions[-1], tree])
        return tree
    orig, debian = tarballs["orig"][-1], tarballs["debian"][-1]
    version = debian.name.split("_")[1].split(".debian.tar")[0]
    tree = folder / f"{package}-{version}"
    tree.mkdir()
    run(["tar", "-xf", orig, "-C", tree, "--strip-components=1"])
    run(["tar", "-xf", debian, "-C", tree])
    patches = tree / "debian/patches"
    for line in (patches / "series").read_text().splitlines():
        name = line.split("#")[0].strip()
        if name:
            run(["patch", "-p1", "-s", "-i", patches / name.split()[0]],
                cwd=tree)
    return tree
