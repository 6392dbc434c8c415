#!/usr/bin/env bash
# Measures on a machine with a GPU and without a network, in commands of at most ten minutes: see README.md beside this.
#
#   tests/gpu/run.sh STEP [--device cpu|cuda|tensorrt] [--minutes N] [--smoke] [--dry-run] [GRAPH...]
#
# STEP: wheels, install, machine, prices, papers, validate, place, never-slower, end-to-end, baselines, steptime, collect
# or pages.
# Every step skips what it has finished. Exit status: 0 done; 1 a graph has failed; 75 the time is up, call again.
#
# It writes below the current folder only: build/gpu (wheels, virtual environment), runs/gpu/DEVICE (tables, prices),
# runs/reproduce (finished units); only `collect` and `pages` write into experiments/results. No setting of the GPU
# changes.
# Of the code's folder, `install` builds the engine in taso_ext and makes rlflow.egg-info.
set -euo pipefail

readonly UNFINISHED=75
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT BUILD=build/gpu
PART=${PART:-40M}             # size of one part of the wheels
LEAVE_OUT=${LEAVE_OUT:-}      # names of packages that the other machine has
BASE=${BASE:-python3}         # the interpreter that `install` makes an environment of
TARGET=${TARGET:-3.12}        # its version, for `wheels`

main() {
  (($# > 0)) || usage
  local step=$1
  shift
  device=cuda minutes=9 scale=full dry=false graphs=()
  while (($# > 0)); do
    case $1 in
      --device) device=${2:?"--device needs a name"} && shift 2 ;;
      --minutes) minutes=${2:?"--minutes needs a number"} && shift 2 ;;
      --smoke) scale=smoke && shift ;;
      --dry-run) dry=true && shift ;;
      -*) usage ;;
      *) graphs+=("$1") && shift ;;
    esac
  done
  [[ $minutes =~ ^[0-9]+$ ]] || usage
  case $step in
    wheels | install | machine | prices | papers | validate | place | never-slower | end-to-end | baselines) ;;
    steptime | collect | pages) ;;
    *) usage ;;
  esac
  deadline=$((SECONDS + 60 * minutes))
  made=runs/gpu/$device$([[ $scale = full ]] || echo -smoke)
  python=${PYTHON:-$([[ -x $BUILD/venv/bin/python ]] && echo "$PWD/$BUILD/venv/bin/python" || echo "$ROOT/.venv/bin/python")}
  # Single precision means what it says: outputs are compared, and TF32 has 10 bits.
  export NVIDIA_TF32_OVERRIDE=${NVIDIA_TF32_OVERRIDE:-0}
  export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} XDG_CACHE_HOME=$PWD/$BUILD/cache
  $dry || mkdir -p "$made" "$BUILD"
  "${step//-/_}"
}

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# What rlflow needs where nothing is trained, from pyproject.toml: everything but TensorFlow and what belongs to it.
requirements() {
  "$python" - "$ROOT/pyproject.toml" <<'PYTHON'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
extra = project["optional-dependencies"]
of_training = ("tensorflow", "graph-nets", "dm-sonnet", "onnxruntime~")
wanted = [each for each in project["dependencies"] if not each.startswith(of_training)]
wanted += [each for each in extra["dev"] if each.startswith("pybind11")] + extra["gpu"]
wanted += [each for each in extra["baselines"] if each.startswith("onnxsim")]
print("\n".join(wanted))
PYTHON
}

# On a machine with a network: the wheels in parts that can be carried one by one, and their checksums.
wheels() {
  local platforms=() needed=() n name
  for n in 2_17 2_24 2_26 2_27 2_28 2_31 2_34; do platforms+=(--platform "manylinux_${n}_x86_64"); done
  mapfile -t needed < <(requirements)
  run "$python" -m pip download --disable-pip-version-check --only-binary=:all: --implementation cp \
    --python-version "$TARGET" "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
    --dest "$BUILD/wheels" "${needed[@]}"
  for name in $LEAVE_OUT; do run rm -f "$BUILD/wheels/${name//-/_}"-[0-9]*.whl; done
  if $dry; then return; fi
  rm -rf "$BUILD/parts" && mkdir "$BUILD/parts"
  tar -C "$BUILD" -cf - wheels | split -b "$PART" -d - "$BUILD/parts/part-"
  (cd "$BUILD/parts" && sha256sum part-* >SHA256SUMS && ls -sh)
}

# There: joins the parts, makes an environment on top of the installed Python, builds the engine, starts the device.
install() {
  local needed=() below
  if $dry || [[ -f $BUILD/parts/SHA256SUMS && ! -d $BUILD/wheels ]]; then join; fi
  if $dry || [[ ! -f $BUILD/venv/.installed ]]; then
    mapfile -t needed < <(python=$BASE requirements)
    # What the installed Python has is seen there too, and NVIDIA's libraries where ONNX Runtime looks for them.
    run rm -rf "$BUILD/venv"
    run "$BASE" -m venv --without-pip "$BUILD/venv"
    python=$PWD/$BUILD/venv/bin/python
    if ! $dry; then
      below=$("$BASE" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      echo "$below" >"$site/below.pth"
      [[ ! -d $below/nvidia ]] || ln -s "$below/nvidia" "$site/nvidia"
    fi
    run "$python" -m pip install --disable-pip-version-check --no-index --find-links "$BUILD/wheels" "${needed[@]}"
    (run cd "$ROOT" && RLFLOW_BUILD_JOBS=$(nproc) run "$python" setup.py -q build_ext --inplace)
    (run cd "$ROOT" && RLFLOW_PYTHON_ONLY=1 run "$python" -m pip install --disable-pip-version-check --no-index \
      --no-deps --no-build-isolation --editable .)
    $dry || touch "$BUILD/venv/.installed"
  fi
  machine
}

join() {
  if ! $dry && ! (cd "$BUILD/parts" && sha256sum --check --quiet SHA256SUMS >&2); then
    echo "tests/gpu/run.sh: $BUILD/parts lacks parts, or they are damaged. Carry those named above again." >&2
    exit 2
  fi
  if $dry; then return; fi
  rm -rf "$BUILD/joined" && mkdir "$BUILD/joined"
  cat "$BUILD"/parts/part-* | tar -C "$BUILD/joined" -xf -
  mv "$BUILD/joined/wheels" "$BUILD/wheels" # whole: an interrupted join is done again
}

# Shows the machine, after a model of one operator has run on the device.
machine() { run "$python" -m tests.gpu.collect --device "$device"; }

prices() {
  local unfinished=0
  each_graph record_prices || unfinished=$?
  run "$python" -m experiments.cli costs export "$made/prices.sqlite" --force --setting "$device ("
  return "$unfinished"
}

record_prices() {
  local walks=(--walks 2 --steps 15)
  [[ $scale = full ]] || walks=(--walks 1 --steps 2)
  limited "$python" -m experiments.cli costs record "$1" --device "$device" "${walks[@]}"
}

# The networks of the papers, by the cost model of the papers' card and by this device's own prices, and by an agent
# that plays instead of a search; all are timed.
papers() {
  if ((${#graphs[@]} == 0)) && [[ $scale = full ]]; then graphs=(squeezenet1.1 bert-base); fi
  each_graph paper
}

paper() {
  local kind costs controller file budget=2000
  [[ $scale = full ]] || budget=5
  for kind in $(kinds); do
    costs=roofline:rtx2070 controller=taso file=$made/papers/$1-$kind
    [[ $kind != measured ]] || costs=measured:$device
    [[ $kind != played ]] || controller=best-of-n
    [[ ! -s $file.json ]] || continue
    limited "$python" -m experiments.cli optimise "$1" -o "$file.onnx" --force --run-dir "$file" \
      --controller $controller --budget "$budget" --costs "$costs" --device "$device" || return # `set -e` is off here
    $dry || cp "$file/result.json" "$file.json"
  done
}

# The kinds of runs that `papers` makes; TensorRT shows no kernels, so that none has a price there.
kinds() { echo roofline played; [[ $device = tensorrt ]] || echo measured; }

# Replays what `papers` has left, proves its results again and times them: on this device or on another one.
validate() {
  if ((${#graphs[@]} == 0)) && [[ $scale = full ]]; then graphs=(squeezenet1.1 bert-base); fi
  each_graph validated
}

validated() {
  local kind file said
  for kind in $(kinds); do
    file=$made/papers/$1-$kind said=$made/validated/$1-$kind.json
    [[ ! -s $said ]] || continue
    if $dry; then
      limited "$python" -m experiments.cli validate "$file" --device "$device" --json
      continue
    fi
    mkdir -p "$made/validated"
    limited "$python" -m experiments.cli validate "$file" --device "$device" --json >"$said.part" || return
    mv "$said.part" "$said"
  done
}

# Divides networks between the device and the CPU, compares the outputs and times both against one core.
place() {
  [[ $device != tensorrt ]] || return 0 # a part of a network is a session for CUDA
  if ((${#graphs[@]} == 0)) && [[ $scale = full ]]; then graphs=(squeezenet1.1 inception-v3); fi
  each_graph placed
}

placed() {
  local devices=$device:0,cpu:0 folder=$made/placed/$1 said=$made/placed/$1.json effort=()
  [[ $device != cpu ]] || devices=cpu:0,cpu:1
  [[ $scale = full ]] || effort=(--budget 50 --pairs 2)
  [[ ! -s $said ]] || return 0
  if $dry; then
    limited "$python" -m experiments.cli place "$1" -o "$folder" --force --devices "$devices" "${effort[@]}" --json
    return
  fi
  mkdir -p "$made/placed"
  limited "$python" -m experiments.cli place "$1" -o "$folder" --force --devices "$devices" "${effort[@]}" --json \
    >"$said.part" || return
  mv "$said.part" "$said"
}

never_slower() { table never-slower; }
end_to_end() { if [[ $scale = full ]]; then table end-to-end --seconds 150; else table end-to-end --seconds 2; fi; }
baselines() { table baselines; }
steptime() { # TensorFlow is not carried
  if ((${#graphs[@]} == 0)) && [[ $scale = full ]]; then graphs=(resnet50 bert-base); fi
  table steptime --without-dream
}

# Makes a table graph by graph, and then the table of those graphs that are finished, whose units are only read.
table() {
  local status=0
  name=$1 extra=("${@:2}") finished=()
  each_graph row || status=$?
  ((${#finished[@]} == 0)) || reproduce run "$made/$name" "${finished[@]}"
  return "$status"
}

row() { reproduce limited "$made/graphs/$name/$1" "$1" && finished+=("$1"); }

reproduce() {
  "$1" "$python" -m experiments.cli reproduce "$name" "${@:3}" --device "$device" --scale "$scale" "${extra[@]}" \
    -o "$2" --force
}

collect() {
  local results=experiments/results
  [[ $scale = full ]] || results=$made/collected
  run "$python" -m tests.gpu.collect --device "$device" --made "$made" --results "$results"
}

# After the archive of another machine was unpacked here: the pages of the CPU show what was measured there.
pages() { run "$python" -m tests.gpu.collect --pages; }

# Calls a function with each graph, those of the papers first; goes on after a failure, and ends when the time is up.
each_graph() {
  local graph status failed=()
  if ((${#graphs[@]} == 0)); then
    graphs=(squeezenet1.1 bert-base nasrnn resnet18 resnet50 inception-v3 resnext50 nasnet-a vit-base dalle-mini
      transformer-transducer)
    [[ $scale = full ]] || graphs=(squeezenet1.1-tiny bert-base-tiny)
  fi
  for graph in "${graphs[@]}"; do
    status=0
    "$1" "$graph" || status=$?
    if ((status == UNFINISHED)); then
      echo "tests/gpu/run.sh: the time is up at $graph; the same command goes on." >&2
      return $UNFINISHED
    fi
    ((status == 0)) || failed+=("$graph")
  done
  ((${#failed[@]} > 0)) || return 0
  echo "tests/gpu/run.sh: failed: ${failed[*]}" >&2
  return 1
}

# Runs a command until the time of this step is up. rlflow keeps what is finished when it is ended.
limited() {
  local left=$((deadline - SECONDS)) status=0
  if $dry; then run "$@" && return; fi
  ((left > 0)) || return $UNFINISHED
  run timeout --kill-after=15 "$left" "$@" || status=$?
  ((status != 124 && status != 137)) || return $UNFINISHED
  return "$status"
}

# Shows a command and runs it; only shows it in a dry run.
run() {
  { printf '%q ' "$@" && echo; } >&2
  $dry || "$@"
}

main "$@"
