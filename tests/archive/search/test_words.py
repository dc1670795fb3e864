"""The tokeniser: what can be typed finds what was written."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.archive.domain.search import words

LETTERS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=80)
SHELL = st.text(alphabet="aZ09_-./+=\"'$ {}():;|&<>,@%*é\t#", max_size=60)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "module load gromacs/2023.3-foss-2023a",
            {"gromacs/2023.3-foss-2023a", "gromacs", "2023.3-foss-2023a"},
        ),
        ("#SBATCH --mem=4G", {"sbatch", "--mem=4g", "--mem", "4g"}),
        ('export OMP_NUM_THREADS="8"', {"omp_num_threads", "8"}),
        ("OMP_NUM_THREADS=8 srun -n 4 ./a.out", {"omp_num_threads=8", "-n", "4", "a.out"}),
        ("--export=A=1,--mem=4G", {"--export=a=1", "--mem=4g"}),
        ("source /cvmfs/nova/setup.sh.", {"cvmfs/nova/setup.sh", "cvmfs", "setup.sh"}),
        ("g++ -O2", {"g++", "-o2"}),
    ],
)
def test_words_of_a_line(line, found):
    assert found <= words.words_of(line)


@given(st.one_of(LETTERS, SHELL))
def test_every_piece_of_a_line_is_found_by_typing_it(line):
    there = words.words_of(line)
    for piece in line.split(" "):
        assert {chunk[: words.LONGEST_WORD] for chunk in words.split_words(piece)} <= there


@given(st.one_of(LETTERS, SHELL))
def test_words_hold_no_blank_and_are_never_empty(text):
    assert all(
        word and not any(letter.isspace() or letter == "\0" for letter in word)
        for word in words.words_of(text)
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("module load gromacs/2023.3 cuda", ["gromacs/2023.3", "cuda"]),
        ("  module --force load R/4.3 # for plots", ["R/4.3"]),
        ("ml nova && run", ["nova"]),
        ("module list", []),
        ("echo module load x", []),
        ("module load $MODULE", ["MODULE"]),
        ("module purge; module load a/1 b && ml c || exit 1", ["a/1", "b", "c"]),
        ("if module load a; then { module add b; }; fi", ["a", "b"]),
        ("setup ifdhc v2_7_2 -q e20:prof", ["ifdhc/v2_7_2"]),
        ("source setup.sh && setup -B dunesw $VERSION", ["dunesw"]),
        ("setup() {", []),
        ("setup.py install; setup x.sh; setup a=b", []),
        ("spack load --first root@6.28.04%gcc cmake arch=linux # gdb", ["root/6.28.04", "cmake"]),
    ],
)
def test_modules_in_a_line(line, names):
    assert words.modules_in(line) == names


def test_module_is_found_with_and_without_its_version():
    there = words.words_of("module load GROMACS/2023.3")
    assert {words.module_word("gromacs/2023.3"), words.module_word("Gromacs")} <= there


@pytest.mark.parametrize("piece", ["if ", "setup ", "a@", "module load ", "-B ", "; "])
def test_hostile_lines_take_no_time(piece):
    began = time.process_time()
    words.modules_in("spack load " + piece * 20_000)
    words.modules_in(piece * 20_000)

    assert time.process_time() - began < 5, "linear takes 0.1 s"


@pytest.mark.parametrize(
    ("typed", "terms"),
    [
        ("gromacs/2023.3", ["'gromacs/2023.3'"]),
        ("--mem=4G srun", ["'--mem=4g'", "'srun'"]),
        ("gromacs/20*", ["'gromacs/20':*"]),
        ("gromacs/*", ["'gromacs/':*"]),
        ("$(( *", []),
        ("a='b'", ["'a'", "'b'"]),
        (r"--re=\d", [r"'--re=\\d'"]),
    ],
)
def test_what_is_typed_becomes_terms(typed, terms):
    assert words.query_for(typed) == terms


def test_words_of_a_huge_script_fit_into_the_database():
    script = "\n".join(f"{'é' * 100}{number}" for number in range(30_000))
    there = words.words_of(script)
    assert len(there) <= words.INDEXED_WORDS + 1000
    assert sum(len(word.encode()) for word in there) < words.INDEXED_WORDS_BYTES
