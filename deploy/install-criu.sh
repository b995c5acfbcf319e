#!/bin/sh
# Install a current CRIU into a separate folder, for process snapshots (docs/process-snapshots.md). The system is not
# changed: the packages of Debian's testing suite and their dependencies are unpacked there, and run with their own C
# library. Fast if it is already installed.
#   deploy/install-criu.sh [FOLDER]          default: /opt/hopyard/criu, where Hopyard looks for FOLDER/criu
# The mirror and the keys are those of this computer's apt configuration. If the installation is not possible, the script
# prints the reason and succeeds; the tests that need CRIU are then skipped, by name.
set -eu

folder=${1:-/opt/hopyard/criu}
suite=testing

leave() { # why
  echo "no current CRIU was installed in $folder: $1" >&2
  exit 0
}

if [ -x "$folder/criu" ] && "$folder/criu" --version >/dev/null 2>&1; then exit 0; fi
case $(uname -s) in Linux) ;; *) leave "it is for Linux only" ;; esac
for tool in apt-get dpkg; do
  command -v "$tool" >/dev/null 2>&1 || leave "no $tool here; put a CRIU of 4.2 or newer on PATH, or name it in HOPYARD_CRIU"
done
[ "$(id -u)" -eq 0 ] || leave "not root, and CRIU itself needs it; run  sudo $0 $folder"

# The first source of Debian's own packages, and the keys that it is signed with.
targets=$(apt-get indextargets --format '$(COMPONENT)|$(RELEASE)|$(SITE)|$(SOURCESENTRY)' 'Created-By: Packages')
found=$(printf '%s\n' "$targets" | grep '^main|[a-z]*|[^|]*/debian/*|' | head -n 1)
[ -n "$found" ] || leave "apt knows no mirror of Debian's packages; put a CRIU of 4.2 or newer on PATH"
mirror=$(printf '%s' "$found" | cut -d '|' -f 3)
sources=$(printf '%s' "$found" | cut -d '|' -f 4 | sed 's/:[0-9]*$//')
keys=$(sed -n 's/^[Ss]igned-[Bb]y:[[:space:]]*\(\/[^[:space:]]*\).*/\1/p; s/.*signed-by=\(\/[^],[:space:]]*\).*/\1/p' "$sources" |
  head -n 1)

work=$folder.partial
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/apt/parts" "$work/root"
: >"$work/apt/status"
echo "deb ${keys:+[signed-by=$keys]} $mirror $suite main" >"$work/apt/sources.list"

apt() {
  apt-get -qq -o "Dir::Etc::SourceList=$work/apt/sources.list" -o "Dir::Etc::SourceParts=$work/apt/parts" \
    -o "Dir::State::Lists=$work/apt/lists" -o "Dir::State::Status=$work/apt/status" -o "Dir::Cache=$work/apt" \
    -o "Dir::Cache::Archives=$work/apt/archives" -o APT::Install-Recommends=false -o APT::Sandbox::User=root \
    -o APT::Update::Post-Invoke= -o DPkg::Post-Invoke= "$@"
}

echo "installing CRIU in $folder"
apt update || leave "the lists of Debian's $suite suite cannot be got just now"
DEBIAN_FRONTEND=noninteractive apt install -y --download-only criu || leave "its packages cannot be got just now"
for package in "$work"/apt/archives/*.deb; do
  dpkg -x "$package" "$work/root"
done
rm -rf "$work/apt"

loader=$(cd "$work/root" && find . -name 'ld-linux*.so*' | sort | head -n 1 | sed 's/^\.//')
libraries=$(cd "$work/root" && find . -name '*.so*' \( -type f -o -type l \) -exec dirname {} \; | sort -u |
  sed -n 's#^\.\(/.*\)#'"$folder/root"'\1#p' | grep -E '/lib(64)?(/[^/]*-linux-gnu[^/]*)?$' | paste -s -d :)
program=$(cd "$work/root" && find . -path '*/sbin/criu' | head -n 1 | sed 's/^\.//')
if [ -z "$loader" ] || [ -z "$program" ]; then leave "its packages are not built as they were: no loader or no criu"; fi
cat >"$work/criu" <<WRAPPER
#!/bin/sh
exec "$folder/root$loader" --library-path "$libraries" "$folder/root$program" "\$@"
WRAPPER
chmod 755 "$work/criu"
rm -rf "$folder"
mv "$work" "$folder"
trap - EXIT
"$folder/criu" --version
