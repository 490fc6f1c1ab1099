#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Assembles every OpenCL kernel for NVIDIA's architectures, without a GPU.

    tools/kernel_ptx.py --ptxas PATH --libclc PATH [--update] [--match TEXT]

clang makes PTX of each variant in VARIANTS, with the options that the backend gives NVIDIA's driver; ptxas assembles it
for each architecture. A kernel that does not assemble or that spills registers is an error. tests/data/kernel_resources.txt
holds the registers by architecture, the bytes of stack and the bytes of local memory of each kernel; a larger number, a
missing line and a line without a kernel are errors. --update writes the table again. NVIDIA's driver has its own compiler
in front of the same assembler, so its numbers differ a little.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src/backend/opencl/kernels"
TABLE = ROOT / "tests/data/kernel_resources.txt"
# NVIDIA's driver accepts arrays in local memory of more than the 48 KiB that ptxas allows: bytes that have run.
DRIVER_LIMITS = {90: 204800}
ARCHITECTURES = [75, 80, 86, 89, 90, 120]
FIRST_BLOCKS = 5  # ag_dtype of q4_0, the first type of blocks
TYPES = "q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl mxfp4".split()

# libclc has no exp2 for this target.
PRELUDE = """
static inline float __attribute__((overloadable)) device_exp2(float x) {
    float y;
    __asm__("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define exp2 device_exp2
#define native_exp2 device_exp2
"""


def token_options(types, more=""):
    sets = " ".join(f"-D{kind}_TYPES={types}" for kind in ("SPLIT", "PAIR", "ROW", "LONG", "LOGIT"))
    return f"-DLOCAL=256 -DHEAD_DIM=64 -DGROUP=4 -DMAX_K=8192 -DROWS_OF=2 {sets} {more}".strip()


def list_variants():
    """Returns (file, options, lowest architecture) of each program that the backend builds for NVIDIA's devices."""
    plain = "bandwidth convert key_scores kv_compact kv_rerotate kv_write matmul_any recurrence rows sum_weights top_k vendor_check"
    variants = [(name, "", 75) for name in plain.split()]
    variants += [("kv_write", "-DWG=128 -DROTATES=1", 75), ("top_k", "-DMASK=1", 75)]
    variants += [("rows", "-DWG=256", 75), ("rows", "-DWIDTH=4", 75)]
    for k_type, v_type in ((1, 1), (7, 5)):  # f16, q8_0 and q4_0
        variants.append(("attention", f"-DQUERIES=4 -DWG=128 -DMANY=1 -DDIM=64 -DK_TYPE={k_type} -DV_TYPE={v_type}", 75))
    for queries in (4, 16):
        for more in ("", " -DWINDOW=1 -DSOFTCAP=1"):
            variants.append(("attention", f"-DQUERIES={queries} -DWG=128{more}", 75))
    for dim, k_type, v_type, more in ((64, 1, 1, ""), (128, 1, 1, ""), (64, 7, 7, ""), (128, 7, 5, ""),
                                      (64, 1, 1, " -DWINDOW=1 -DSOFTCAP=1"), (128, 1, 1, " -DWINDOW=1")):
        options = f"-DDIM={dim} -DWARPS=4 -DK_TYPE={k_type} -DV_TYPE={v_type}{more}"  # f16, q8_0, q4_0
        variants.append(("attention_mma", options, 80))
    for dim, queries, k_type, v_type, more in ((64, 4, 1, 1, ""), (64, 8, 1, 1, ""), (128, 8, 1, 1, ""), (64, 4, 7, 5, ""),
                                               (128, 4, 7, 7, ""), (128, 8, 5, 5, ""), (64, 4, 1, 1, " -DWINDOW=1 -DSOFTCAP=1"),
                                               (64, 4, 1, 1, " -DSCORES=1"), (128, 8, 1, 1, " -DSCORES=1")):
        options = f"-DDIM={dim} -DQUERIES={queries} -DWARPS=6 -DK_TYPE={k_type} -DV_TYPE={v_type}{more}"
        variants.append(("attention_rows", options, 80))
    for dtype in ("f32", "f16", "bf16"):
        for rows in (1, 4, 8):
            options = f"-DWTYPE=WEIGHT_{dtype} -DINT_DOT=0 -DLANES=32 -DTEAMS=4 -DTEAM_ROWS=2 -DX_ROWS={rows}"
            variants.append(("matvec", options, 75))
        variants.append(("matmul_tile", f"-DWTYPE=WEIGHT_{dtype} -DTILE_M=64 -DTILE_N=64", 75))
    for dtype in TYPES:
        variants.append(("matmul_rows", f"-DWTYPE=WEIGHT_{dtype}", 75))
        for rows in (1, 4, 8):
            options = f"-DWTYPE=WEIGHT_{dtype} -DINT_DOT=1 -DLANES=32 -DTEAMS=4 -DTEAM_ROWS=2 -DX_ROWS={rows}"
            variants.append(("matvec", options, 75))
        variants.append(("matmul_tile", f"-DWTYPE=WEIGHT_{dtype} -DTILE_M=64 -DTILE_N=64", 75))
        # With half of Hopper's local memory, with all of it, and with 48 KiB.
        stages = {"q8_0": 2, "q2_k": 4, "q3_k": 4}.get(dtype, 3)
        for sizes in ("16 -DSTAGES=4 -DSTEPS=1 -DRUN=4 -DTEAMS=1", "128 -DSTAGES=3 -DSTEPS=1 -DRUN=4 -DTEAMS=1",
                      f"64 -DSTAGES={stages} -DSTEPS=4 -DRUN=4 -DTEAMS=4", "16 -DSTAGES=4 -DSTEPS=4 -DRUN=4 -DTEAMS=4"):
            variants.append(("matmul_mma", f"-DWTYPE=WEIGHT_{dtype} -DTILE_M={sizes}", 80))
        rows, run = (64, 4) if dtype in ("q8_0", "q6_k") else (128, 1) if dtype in ("q5_1", "q5_k") else (128, 4)
        options = f"-DWTYPE=WEIGHT_{dtype} -DTILE_M={rows} -DSTAGES=2 -DSTEPS=1 -DRUN={run} -DTEAMS=1"
        variants.append(("matmul_mma", options, 80))
    for dtype in ("q4_0", "f16", "bf16"):
        for wg, chunks in ((128, 1), (512, 2)):
            variants.append(("pack", f"-DWTYPE=WEIGHT_{dtype} -DWG={wg} -DCHUNKS={chunks}", 80))
    variants.append(("pack", "-DWTYPE=WEIGHT_q4_0 -DWG=512 -DCHUNKS=1 -DGELU=1", 80))
    for dtype in ("f16", "bf16"):
        for sizes in ("128 -DSTAGES=2 -DSTEPS=1 -DRUN=4 -DTEAMS=1", "16 -DSTAGES=2 -DSTEPS=1 -DRUN=4 -DTEAMS=1",
                      "16 -DSTAGES=2 -DSTEPS=4 -DRUN=4 -DTEAMS=4"):
            variants.append(("matmul_mma", f"-DWTYPE=WEIGHT_{dtype} -DTILE_M={sizes}", 80))
    # f16, bf16, q4_0, q8_0, q4_k, q6_k
    for number in 1, 2, FIRST_BLOCKS, FIRST_BLOCKS + 2, FIRST_BLOCKS + 7, FIRST_BLOCKS + 9:
        variants.append(("token", token_options(1 << number), 80))
    variants.append(("token", token_options(1 << FIRST_BLOCKS, "-DSCORES=1"), 80))
    all_types = (1 << len(TYPES)) - 1 << FIRST_BLOCKS | 6
    variants.append(("token", token_options(all_types, "-DWINDOW=1 -DQK_NORM=1 -DGELU=1"), 80))
    return variants


def to_ptx(variant, libclc, directory):
    """Returns the PTX of a variant for the lowest architecture."""
    name, options, _ = variant
    out = os.path.join(directory, f"{abs(hash(variant)):x}.ptx")
    prelude = os.path.join(directory, "prelude.h")
    command = ["clang", "-x", "cl", "-cl-std=CL1.2", "-O3", "-target", "nvptx64--nvidiacl", "-S", "-o", out,
               "-Xclang", "-finclude-default-header", "-Xclang", "-cl-ext=+cl_khr_fp16", "-include", prelude,
               "-Xclang", "-target-cpu", "-Xclang", "sm_75", "-Xclang", "-target-feature", "-Xclang", "+ptx75",
               "-Xclang", "-mlink-builtin-bitcode", "-Xclang", libclc, "-Wno-pass-failed", "-Wno-unknown-pragmas",
               "-D__NV_CL_C_VERSION=300", "-Dasm=__asm__", "-I", str(ROOT / "include/antigravity"),
               *options.split(), str(KERNELS / f"{name}.cl")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}.cl {options}: clang fails:\n{done.stderr[:2000]}")
    return pathlib.Path(out).read_text()


def assemble(ptx, arch, label, ptxas, directory):
    """Returns {kernel: (registers, stack, local)} and raises with what ptxas says."""
    text = re.sub(r"^\.version.*", ".version 8.7", ptx, count=1, flags=re.M)
    text = re.sub(r"^\.target.*", f".target sm_{arch}", text, count=1, flags=re.M)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx", dir=directory, delete=False) as f:
        f.write(text)
    # As the driver does for work-groups of 512, which clang does not tell ptxas.
    most = ["-maxrregcount=128"] if "matmul_mma" in label and "-DTEAMS=4" in label else []
    done = subprocess.run([ptxas, "-v", f"-arch=sm_{arch}", *most, f.name, "-o", os.devnull], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error" in line or "fatal" in line]
    sizes = [int(m[1], 16) for line in errors if (m := re.search(r"too much shared data \(0x([0-9a-f]+) bytes", line))]
    if done.returncode and len(sizes) != len(errors):
        raise RuntimeError(f"{label} for sm_{arch}: ptxas fails:\n{done.stderr[:2000]}")
    if sizes and max(sizes) > DRIVER_LIMITS.get(arch, 0):
        return {}  # the backend does not choose this variant there
    return read_report(done.stderr, f"{label} for sm_{arch}")


def read_report(report, label):
    kernels, name, stack = {}, None, 0
    for line in report.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name, stack = m[1], 0
        elif (m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)) and name:
            stack = int(m[1])
            if int(m[2]) or int(m[3]):
                raise RuntimeError(f"{label}: kernel {name} spills {m[2]} and {m[3]} bytes")
        elif (m := re.search(r"Used (\d+) registers", line)) and name:
            local = re.search(r"(\d+) bytes smem", line)
            kernels[name] = (int(m[1]), stack, int(local[1]) if local else 0)
            name = None
    return kernels


def measure(variant, args, directory):
    """Returns {key: [stack, local, registers by architecture]}."""
    name, options, lowest = variant
    ptx = to_ptx(variant, args.libclc, directory)
    rows = {}
    for i, arch in enumerate(ARCHITECTURES):
        if arch < lowest:
            continue
        for kernel, (registers, stack, local) in assemble(ptx, arch, f"{name}.cl {options}", args.ptxas, directory).items():
            row = rows.setdefault(f"{name}.cl {kernel} {options}".strip(), [0, 0] + [0] * len(ARCHITECTURES))
            row[0], row[1], row[2 + i] = max(row[0], stack), max(row[1], local), registers
    return rows


def write_table(rows):
    names = " ".join(f"sm_{a}" for a in ARCHITECTURES)
    lines = ["# Resources of each kernel, by tools/kernel_ptx.py: bytes of stack, bytes of local memory, registers.",
             f"# stack local {names} file kernel options"]
    lines += [" ".join(f"{v:5}" for v in rows[key]) + "  " + key for key in sorted(rows)]
    TABLE.write_text("\n".join(lines) + "\n")


def read_table():
    rows = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            words = line.split(None, 2 + len(ARCHITECTURES))
            rows[words[-1]] = [int(w) for w in words[:-1]]
    return rows


def compare(found, expected, match):
    names = ["bytes of stack", "bytes of local memory"] + [f"registers on sm_{a}" for a in ARCHITECTURES]
    faults = [f"{key}: is not in the table" for key in found if key not in expected]
    faults += [f"{key}: is in the table, but no such kernel was built" for key in expected
               if key not in found and match in key]
    for key in found:
        for name, new, old in zip(names, found[key], expected.get(key, found[key])):
            if old and not new and "sm_" in name:
                faults.append(f"{key}: exceeds the local memory of {name.split()[-1]}, the table has {old} {name}")
            if new > old:
                faults.append(f"{key}: {new} {name}, the table has {old}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--libclc", required=True, help="nvptx64--nvidiacl.bc of clang's version")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--match", default="", help="only variants with this text in 'FILE.cl OPTIONS'")
    args = parser.parse_args()
    found, faults = {}, []
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "prelude.h").write_text(PRELUDE)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            chosen = [v for v in list_variants() if args.match in f"{v[0]}.cl {v[1]}"]
            for future in [pool.submit(measure, v, args, directory) for v in chosen]:
                try:
                    found.update(future.result())
                except RuntimeError as e:
                    faults.append(str(e))
    if args.update and not faults:
        write_table({**(read_table() if args.match else {}), **found})
    elif not args.update:
        faults += compare(found, read_table(), args.match)
    print(f"{len(found)} kernels, {len(faults)} faults")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
