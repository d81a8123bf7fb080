"""Apache Pulsar's jars from Maven Central, and our Java programs compiled against them.

They are kept outside the checkout, in ``$GEMINGA_PEERS_DIR`` or ``~/.cache/geminga-peers``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat_tests.apache.archives import archive_path, shared
from compat_tests.apache.locks import locked

PULSAR_VERSION = "4.0.7"
_JARS_EXPECTED_MIN = 300
_JAVA_SOURCES = Path(__file__).parent / "java"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId>
    <version>{PULSAR_VERSION}</version>
  </dependency></dependencies>
</project>
"""

TOOLS_VERSION = "4.0.6"
"""Of the proxy and the command line's tools: Maven Central has this one and 4.0.8, which have the
same keys of configuration.
"""
_TOOLS_JARS = (
    ("org.apache.pulsar", "pulsar-proxy", TOOLS_VERSION),
    ("org.apache.pulsar", "pulsar-client-tools", TOOLS_VERSION),
    ("org.eclipse.jetty", "jetty-proxy", "9.4.57.v20241219"),
    ("com.github.seancfoley", "ipaddress", "5.5.0"),
)
_TOOLS = "".join(
    f"""<dependency>
      <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
    for group, name, version in _TOOLS_JARS
)
_TOOLS_POM = re.sub("<dependency>.*</dependency>", _TOOLS, _POM, flags=re.DOTALL)

# What Netty, BookKeeper and RocksDB reach into on Java 17.
JAVA_FLAGS = (
    *(
        flag
        for package in ("java.io", "java.util.zip", "java.nio", "jdk.internal.misc", "sun.net")
        for flag in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djute.maxbuffer=10485760",
    "-Dlog4j2.is.webapp=false",
    "-XX:+UseSerialGC",
)

_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders><Console name="out" target="SYSTEM_ERR">
    <PatternLayout pattern="%d{HH:mm:ss.SSS} %-5level %c{1} - %msg%n%throwable"/>
  </Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class PeerMissing(Exception):
    """Apache's software cannot be had here; the text is the reason to show."""


def peers_dir() -> Path:
    """Where fetched software is kept."""
    return Path(os.environ.get("GEMINGA_PEERS_DIR") or Path.home() / ".cache" / "geminga-peers")


def require_java(*programs: str) -> None:
    """Raises PeerMissing when Java, or one of its programs, is not installed."""
    for program in programs or ("java", "javac"):
        if shutil.which(program) is None:
            raise PeerMissing(f"{program} is not installed")


def jars() -> Path:
    """The folder of Apache's jars, fetched by Maven the first time (some 100 s).

    Raises PeerMissing without Java, or when Maven is missing or cannot fetch them.
    """
    require_java()
    home = peers_dir() / f"pulsar-{PULSAR_VERSION}"
    library = home / "lib"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if len(list(library.glob("*.jar"))) >= _JARS_EXPECTED_MIN:
            return library
        if shutil.which("mvn") is None:
            raise PeerMissing("mvn is not installed, and Apache's jars are not there yet")
        if home not in _failures:
            _failures[home] = _fetch(home, library)
        if _failures[home]:
            raise PeerMissing(_failures[home])
    return library


def tools_jars() -> Path:
    """The folder of the jars of Apache's proxy and tools, with what `jars` lacks of those that they
    need.

    Raises PeerMissing as `jars`.
    """
    require_java()
    home = peers_dir() / f"pulsar-tools-{TOOLS_VERSION}"
    library = home / "lib"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if len(list(library.glob("*.jar"))) < len(_TOOLS_JARS):
            if shutil.which("mvn") is None:
                raise PeerMissing("mvn is not installed, and Apache's tools are not there yet")
            if reason := _fetch(home, library, _TOOLS_POM):
                raise PeerMissing(reason)
    return library


def class_path() -> str:
    """Class path with the logging set-up, our compiled programs and Apache's jars."""
    library = jars()
    return f"{_compiled(library)}:{library}/*"


def java_command(
    main_class: str, arguments: Sequence[str], *, heap_mb: int = 512, lean: bool = True
) -> list[str]:
    """Command line that runs a class with Apache's jars and the flags that they need. A lean one
    starts with a third of the processor time; one that is not is as its users start it, and
    compiles what runs long as well as it can.
    """
    flags = ["-Xms64m", f"-Xmx{heap_mb}m", *(lean_flags() if lean else [])]
    return ["java", *flags, *JAVA_FLAGS, "-cp", class_path(), main_class, *arguments]


def lean_flags() -> list[str]:
    """For programs that are over before good compiling would pay."""
    return ["-XX:TieredStopAtLevel=1", "-XX:MetaspaceSize=256m", *shared(archive())]


def archive() -> Path:
    """Of the classes that servers and clients load; see `training.prepare`."""
    programs = _compiled(jars())
    return archive_path(programs.parent, "apache", programs.name)


def run_java(
    main_class: str,
    arguments: Sequence[str],
    *,
    flags: Sequence[str] = (),
    heap_mb: int = 128,
    stdin: str | None = None,
    timeout_s: float = 300.0,
) -> str:
    """What a class with Apache's jars prints; it must end with code 0."""
    java, *rest = java_command(main_class, arguments, heap_mb=heap_mb)
    command = [java, *flags, *rest]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_failures: dict[Path, str] = {}
"""What Maven could not do for this process; empty if it could. Not tried again for each test."""


def _fetch(home: Path, library: Path, pom: str = _POM) -> str:
    """Returns why it failed; empty if it did not."""
    (home / "pom.xml").write_text(pom)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={library}"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[0]
    return f"Maven could not fetch Apache Pulsar {PULSAR_VERSION}: {last}"


def _compiled(library: Path) -> Path:
    """Compile our programs once per state of their sources; return their jar."""
    if library in _programs:
        return _programs[library]
    sources = sorted(_JAVA_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = library.parent / f"programs-{digest}.jar"
    with locked(library.parent / ".lock"):
        if not target.exists():
            fresh = target.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            (fresh / "log4j2.xml").write_text(_LOG4J)
            command = ["javac", "-nowarn", "-d", str(fresh), "-cp", f"{library}/*"]
            done = subprocess.run(
                [*command, *map(str, sources)], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(f"javac failed:\n{done.stderr}")
            # A jar, as Java archives no classes while a folder is on the class path.
            shutil.make_archive(str(fresh), "zip", fresh)
            fresh.with_suffix(".new.zip").rename(target)
            shutil.rmtree(fresh)
    return _programs.setdefault(library, target)


_programs: dict[Path, Path] = {}
"""What `_compiled` has returned in this process."""
