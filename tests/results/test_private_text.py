"""What is private in texts is removed, and what only looks like it stays."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.results import files
from longca.results.private_text import Cleaner, PrivateText
from longca.results.record import Environment, MaskEntry

REPOSITORY = Path(__file__).parents[2]
TEXTS = PrivateText(["node17", "ada", "jo"])


@pytest.mark.parametrize(
    "text",
    [
        # versions and packages
        "fa4 4.0.0b36 needs torch 2.11.0+cu130, not 2.13.0+cpu or 2.12.0.dev20261101",
        "nvidia-cudnn-cu13 9.19.0.56 and TensorRT 10.3.0.26 with driver 580.159.04",
        "nvidia-cutlass-dsl==4.8.1, flash-attn@2.8.1, torch>=2.11,<3",
        "nvidia-curand-cu12==10.3.9.90, TensorRT-10.3.0.26, cuDNN version 10.0.0.56, libcurand.so.10.3.9.90, v10.0.0.56, 10.3.0.26+cu13",
        "cublas 12.8.4.1, nvidia-cudnn-frontend 1.32.0, 172.32.0.1, 12.8.4.1 < 13, 10.0.19045.3803",
        "Linux-6.18.44-fc-v445-gpu-x86_64-with-glibc2.39",
        "Linux-5.15.90.1-microsoft-standard-WSL2-x86_64-with-glibc2.35",
        # masks
        "causal & ~sliding_window(w=2K) | sink_window_causal(s=4, w=1K)",
        "causal & 'mine.json' - uniform_block(b=128)",
        # numbers and names with colons
        "w=1:2, x[1:2], x[::2], x[2048::2], q[:, 2048::2], 0:1:2:3:4:5:6:7, 12:30:05, 2026-11-01T12:30:05.123, 0000:3b:00.0",
        "at::native::add, torch::autograd, c10::add, a::b::c, std::fa::b, c10::cuda::abc, d41d8cd98f00b204e9800998ecf8427e",
        # files and code
        "kernel.py line 12, kernel.cu:34, pair.cc:534, libcudnn.so.9, run.sh, README.md, results.jsonl",
        "torch.ops.aten has no kernel; torch.nn.attention.flex_attention, aten.transpose.int, cutlass.cute.arch, threading.local",
        "torch.ops.aten._scaled_dot_product_flash_attention, longca.parallel.cluster, flash_attn.cute.interface, flash_attn_3._C",
        "q @ k.T, q@k, x.y.to(device), @longca.kernel, memcpy@plt, foo@GLIBC_2.34, node1.node is None, x[0]:12, token = 17",
        "AssertionError in torch/_inductor/select_algorithm.py; out/run and examples/my_kernel.py are relative",
        "12 TFLOP/s on tf32/bf16, forward / backward, and/or, 64:8 heads, -/597, x //4, env://",
        # sites
        "see https://docs.nvidia.com/cuda/cublas/index.html#x, https://github.com/a/b/issues/1?q=is and https://example.org/a/b/c",
        "see docs.pytorch.org/docs/stable, github.com/NVIDIA/cutlass and longca.readthedocs.io",
        "adaptive, canada, major",
    ],
)
def test_what_is_not_private_stays(text: str) -> None:
    assert TEXTS.free(text) == TEXTS.name(text) == text
    assert TEXTS.remains(text) == ""


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        # paths
        ("cannot open /home/eve/work/kernel.py: denied", "cannot open kernel.py: denied"),
        ("no space in /home/eve, /scratch/eve.smith/ or /eve.", "no space in …, … or …."),
        ("open('/home/Eve Smith/my kernel.py')", "open('my kernel.py')"),
        ("nvcc -I/home/eve/include -o x.o, ptxas is /usr/local/cuda/bin/ptxas", "nvcc -I… -o x.o, ptxas is ptxas"),
        ("PYTHONPATH=/opt/a:/home/eve/lib", "PYTHONPATH=…:…"),
        ("error:/home/eve/k.py:12", "error:k.py:12"),
        ("file:///home/eve/k.py", "file://…"),
        (r"C:\Users\eve\k.py, C:\\Users\\eve\\k.py, C:/Users/eve/k.py, \\server\eve\k.py", "k.py, k.py, k.py, k.py"),
        ("~/eve/k.py ~eve/k.py ../eve/k.py home/eve/k.py x/home/eve/k.py", "k.py k.py k.py k.py k.py"),
        # machines and accounts
        ("eve@node99.cluster.example.com: denied, token=abc", "…: denied, token=…"),
        ("eve@node99, git@github.com:eve/x.git, eve@10.0.0.5", "…, …, …"),
        ("scp eve@login.example.com:/home/eve/x.py", "scp …"),
        ("node99.example.com: oom; gpu03.cs.ox.ac.uk; login1.hpc.uni-x.de; login1.cineca.it", "…: oom; …; …; …"),
        ("ip-10-0-0-5.ec2.internal, eves-macbook-pro.local, node99.cluster, node1.cluster.", "…, …, …, …."),
        ("registry.example.com/eve/image:1", "…"),
        ("[node99]:29500 or [::ffff:10.0.0.5]:29500 or 10.0.0.5:29500", "…:29500 or …:29500 or …:29500"),
        ("closed by peer [10.0.0.5]:42130, host 10.0.0.7", "closed by peer …:42130, host …"),
        ("Connect to 10.12.4.7<38219> failed, [0]eth0:8.8.8.8<0>, 8.8.8.8 port 22", "Connect to …<38219> failed, [0]eth0:…<0>, … port 22"),
        ("MASTER_ADDR=8.8.8.8 Connecting to 8.8.4.4, {'host': '8.8.8.8'}", "MASTER_ADDR=… Connecting to …, {'host': '…'}"),
        ("10.1.2.4 refused, 172.16.3.4, 172.31.3.4: 192.168.1.1/24 (169.254.1.2).", "… refused, …, …: …/24 (…)."),
        ("rank_10.0.0.5_0, 10.0.0.5-eth0, leader==10.0.0.5, 无法连接10.0.0.5。", "rank_…_0, …-eth0, leader==…, 无法连接…。"),
        ("fe80::1ff:fe23:4567:890a unreachable, 2001:db8::, fd00::1.", "… unreachable, …, …."),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334: no, ::ffff:10.0.0.5", "…: no, …"),
        ("[0]eth0:fe80::1%eth0<0>, rank 0:fe80::1:29500, fe80::1:error", "[0]eth0:…%eth0<0>, rank 0:…:29500, …:error"),
        ("tcp://node99:29500, http://node99/x, http://eve:pw@example.org/, https://hub.local/eve", "tcp://… http://… http://… https://…"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst password: xyz", "HF_TOKEN=… password: …"),
        ("Authorization: Bearer abc.def hf_abcdefghijklmnopqrst", "Authorization: Bearer … …"),
        ("--token abcdefghijklmnop --password 1234 --api-key='a b' --token 17", "--token … --password … --api-key='…' --token 17"),
        ("""['run', '--hf-token', 'abc'], {"api_key": "abc"}""", """['run', '--hf-token', '…'], {"api_key": "…"}"""),
        ("https://example.org/a?token=abc", "https://example.org/a?…"),
        # given words
        ("rank 3 on NODE17 of Ada, jo, on node17-ib0", "rank 3 on … of …, …, on …-ib0"),
        ("ada_kernel of run_ada_2, __ada__", "…_kernel of run_…_2, __…__"),
    ],
)
def test_what_is_private_is_removed(text: str, clean: str) -> None:
    assert TEXTS.free(text) == clean
    assert TEXTS.remains(text)
    assert TEXTS.remains(clean) == ""
    assert TEXTS.free(clean) == clean


def test_words_to_keep_stay() -> None:
    text = "node17 of ada at build.example.com and at ci.example.com"
    assert PrivateText(["node17", "ada"], ["Ada", "build.example.com"]).free(text) == "… of ada at build.example.com and at …"


PIECES = ["/", "\\", "..", "~", ":", " ", "'", "home", "eve", "k.py", "-I", "@", "://", "https", "node17", "example.com", "10.0.0.5", "=",
          "(", "token", "ada", "x", "C:", ".", "-", "<", "local"]  # fmt: skip


ANYTHING = st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=9).map("".join)
WORDS = st.lists(st.sampled_from(["error", "on", "rank 3:", "head_dim=64", "torch 2.11.0", "a::b", "(12:30:05)"]), max_size=4).map(" ".join)
PLANTED = [  # a secret, and a part of it that no other text has
    ("10.77.4.7", "77.4"), ("192.168.77.4", "77.4"), ("fe80::77:4", "77:4"), ("8.8.77.4<0>", "77.4"), ("MASTER_ADDR=8.8.77.4", "77.4"),
    ("/home/zelda/lab", "zelda"), ("/data/zelda/k.py", "zelda"), ("~zelda/k.py", "zelda"), (r"C:\Users\zelda\k.py", "zelda"),
    ("gpu7.zelda.edu", "zelda"), ("zelda@gpu7", "zelda"), ("tcp://zelda:29500", "zelda"), ("--token zelda", "zelda"), ("Linus", "linus"),
]  # fmt: skip
OWNER = PrivateText(["linus"])


@given(ANYTHING, st.sampled_from(PLANTED), ANYTHING)
def test_a_secret_is_removed_from_any_text(before: str, planted: tuple[str, str], after: str) -> None:
    secret, part = planted
    assert part not in OWNER.free(f"{before} {secret} {after}").lower()


@given(ANYTHING, st.sampled_from([" ", "_", "-", ".", ",", ":", "/", "=", "(", "'", "\n"]), ANYTHING)
def test_a_private_word_is_removed_between_separators(before: str, separator: str, after: str) -> None:
    assert "linus" not in OWNER.free(f"{before}{separator}Linus{separator}{after}").lower()


@given(WORDS, st.sampled_from(PLANTED), WORDS)
def test_texts_around_a_secret_stay(before: str, planted: tuple[str, str], after: str) -> None:
    cleaned = OWNER.free(f"{before} {planted[0]} {after}")
    assert cleaned.startswith(f"{before} ")
    assert cleaned.endswith(f" {after}")
    assert planted[1] not in cleaned.lower()


def test_messages_of_longca_stay() -> None:
    """They are what most free texts are: of all sentences in the code, those without paths and addresses do not change."""
    sentences = set()
    for file in (REPOSITORY / "src" / "longca" / "kernels").rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        sentences |= {text for text in texts if isinstance(text, str) and " " in text and not re.search(r"(^|[^\w.])[/~\\]|<", text)}
    assert len(sentences) > 500
    assert [text for text in sentences if PrivateText().free(text) != text] == []


def test_published_environments_stay() -> None:
    published = [entry for folder in files.journals_below(REPOSITORY / "results") for entry in files.read_environments(folder).values()]
    clean = Cleaner(PrivateText())
    assert [clean(environment) for environment in published] == published
    assert clean.changed == 0


def test_keys_are_cleaned_and_stay_distinct() -> None:
    files_ = {"/home/eve/k.py": ["a"], "/home/eve/2/k.py": ["b"], "k.py": ["c"], "k-2.py": ["d"], "/home/eve/ada.py": ["e"]}
    clean = Cleaner(TEXTS)
    cleaned = clean(Environment(plugins=files_, packages={"/opt/eve/lib.so": "1"}))
    assert cleaned.plugins == {"k-3.py": ["a"], "k-4.py": ["b"], "k.py": ["c"], "k-2.py": ["d"], "….py": ["e"]}
    assert cleaned.packages == {"lib.so": "1"}
    assert clean.changed == 4


def test_masks_of_two_files_of_one_name_stay_two() -> None:
    names = ["/home/eve/m.json", "/home/eve/2/m.json", "m.json", "causal & '/home/eve/m.json'", "/home/eve/m.json"]
    clean = Cleaner(TEXTS, names)
    entries = [MaskEntry(digest="d", mask=name, seqlen_q=1, seqlen_k=1, area=0, bands=None) for name in names]
    assert [clean(entry).mask for entry in entries] == ["m-2.json", "m-3.json", "m.json", "causal & 'm.json'", "m-2.json"]
