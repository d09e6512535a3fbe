"""Noise against published answers and its distribution; choices against the exact one they should follow."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from specla.ops import noise as noise_module
from specla.ops.noise import KEPT, forget_noise, gumbel_noise, philox
from specla.ops.sampling import Sampling, choose, log_probabilities, scores

# Significance of the tests below. Their seeds are fixed, so a right generator passes always.
LEVEL = 1e-3


def word(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_answers_of_random123(counter: list[int], key: tuple[int, int], answer: list[int]) -> None:
    """The three vectors of `kat_vectors` in Random123 for philox4x32-10."""
    c0, c1, c2, c3 = (word(x) for x in counter)
    assert [int(x) for x in philox((c0, c1, c2, c3), key)] == answer


def test_noise_is_philox_of_its_coordinates() -> None:
    """Token t of (row, position) is word t % 4 of block t // 4; the seed's two halves are the key."""
    seed, row, position, token = (7 << 32) + 5, 3, 11, 9
    blocks = philox((word(token // 4), word(position), word(row), word(0)), (5, 7))
    uniform = ((int(blocks[token % 4]) >> 9) + 0.5) / 2**23
    found = gumbel_noise(seed, word(row), word(position), 10)[0, token]
    assert found.item() == pytest.approx(-np.log(-np.log(uniform)), rel=1e-5)


def test_noise_is_gumbel() -> None:
    noise = gumbel_noise(1, word(*range(8))[:, None], word(*range(50))[None], 257).double().flatten().numpy()
    assert np.isfinite(noise).all()
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=4 * np.pi / np.sqrt(6 * noise.size))
    assert noise.var() == pytest.approx(np.pi**2 / 6, rel=0.02)
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > LEVEL


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_neighbours_are_independent(axis: int) -> None:
    """Next row, next position, next token: ranks that are not correlated, and no value drawn twice in a row."""
    noise = gumbel_noise(2, word(*range(40))[:, None], word(*range(40))[None], 40).movedim(axis, 0).numpy()
    one, other = noise[:-1].flatten(), noise[1:].flatten()
    assert stats.spearmanr(one, other).pvalue > LEVEL
    assert (one == other).mean() < 1e-5


def test_seeds_differ_in_all_their_64_bits() -> None:
    seeds = (0, 1, 1 << 31, 1 << 32, 1 << 63, -1)
    drawn = [gumbel_noise(seed, word(0), word(0), 64) for seed in seeds]
    for one, other in itertools.combinations(drawn, 2):
        assert float((one == other).float().mean()) < 0.1
    assert torch.equal(gumbel_noise(-1, word(0), word(0), 64), gumbel_noise((1 << 64) - 1, word(0), word(0), 64))


def test_noise_of_a_part_is_the_part_of_the_noise() -> None:
    rows, positions = word(*range(6))[:, None], word(*range(5))[None]
    noise = gumbel_noise(3, rows, positions, 33)
    assert noise.shape == (6, 5, 33) and noise.dtype == torch.float32
    order = torch.tensor([4, 0, 2])
    assert torch.equal(gumbel_noise(3, rows[order], positions, 33), noise[order])
    assert torch.equal(gumbel_noise(3, word(4), word(3), 33)[0], noise[4, 3])
    for vocabulary in (1, 4, 31, 32):
        assert torch.equal(gumbel_noise(3, rows, positions, vocabulary), noise[..., :vocabulary])
    large = gumbel_noise(3, word(2**32 - 1), word(2**32 - 1), 8)
    assert bool(large.isfinite().all()) and not torch.equal(large, gumbel_noise(3, word(0), word(0), 8))


def test_noise_is_drawn_once_while_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = noise_module._drawn

    def counted(seed: int, rows: torch.Tensor, positions: torch.Tensor, vocabulary: int) -> torch.Tensor:
        drawn.append(positions.numel())
        return draw(seed, rows, positions, vocabulary)

    monkeypatch.setattr(noise_module, "_drawn", counted)
    forget_noise()
    assert gumbel_noise(5, word(), word(), 33).shape == (0, 33) and drawn.pop() == 0
    first = gumbel_noise(5, word(0, 0, 0), word(1, 2, 2), 33)
    assert drawn == [2] and torch.equal(first[1], first[2])
    again = gumbel_noise(5, word(0), word(2, 3), 33)
    assert drawn == [2, 1] and torch.equal(again[0], first[1])
    for other in ((6, word(0), word(2), 33), (5, word(1), word(2), 33), (5, word(0), word(2), 32)):
        assert gumbel_noise(*other).shape == (1, other[3])
    assert drawn == [2, 1, 1, 1, 1], "seed, row and vocabulary count too"
    # What was returned is the caller's.
    gumbel_noise(5, word(0), word(2), 33).zero_()
    assert torch.equal(gumbel_noise(5, word(0), word(2), 33)[0], first[1]) and len(drawn) == 5
    gumbel_noise(5, word(0), torch.arange(100, 100 + KEPT), 33)
    gumbel_noise(5, word(0), word(2), 33)
    assert drawn[5:] == [KEPT, 1], "the oldest go first"
    forget_noise()
    gumbel_noise(5, word(0), word(2), 33)
    gumbel_noise(5, word(0), torch.arange(KEPT + 1), 33)
    gumbel_noise(5, word(0), torch.arange(KEPT + 1), 33)
    assert drawn[7:] == [1, KEPT + 1, KEPT + 1], "more at once than are kept are not kept"


LOGITS = torch.tensor([2.0, 1.5, 1.5, 0.0, -1.0, -6.0, 1.0])


def exact(temperature: float, top_p: float) -> np.ndarray:
    """The distribution by its definition: softmax, then the most probable tokens until their mass reaches top_p."""
    weights = np.exp(LOGITS.double().numpy() / temperature)
    p = weights / weights.sum()
    kept, mass = np.zeros_like(p), 0.0
    for token in sorted(range(len(p)), key=lambda token: (-p[token], token)):
        if mass >= top_p:
            break
        kept[token] = p[token]
        mass += p[token]
    return kept / kept.sum()


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.8, 0.95), (0.8, 0.5), (2.0, 0.9), (0.3, 1.0), (1.0, 1e-6)]
)
def test_choices_follow_the_distribution(temperature: float, top_p: float) -> None:
    rows, positions = word(*range(20))[:, None], word(*range(1000))[None]
    sampling = Sampling(temperature, top_p, seed=4)
    chosen = choose(LOGITS.expand(20, 1000, -1), sampling, *torch.broadcast_tensors(rows, positions))
    assert chosen.shape == (20, 1000) and chosen.dtype == torch.int64
    counts, expected = np.bincount(chosen.flatten(), minlength=7), exact(temperature, top_p) * chosen.numel()
    assert not counts[expected == 0].any()
    if (expected > 0).sum() > 1:
        assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > LEVEL
    if top_p == 1.0:
        # Neither along a row nor along the positions does one choice tell of the next.
        for one, other in ((chosen[:, :-1], chosen[:, 1:]), (chosen[:-1], chosen[1:])):
            table = np.histogram2d(one.flatten() % 3, other.flatten() % 3, bins=3)[0]
            assert stats.chi2_contingency(table).pvalue > LEVEL


def test_a_bias_of_one_percent_is_seen() -> None:
    """As above, over 1,500,000 draws: the right sampler passes, and three that are a hundredth off fail."""
    temperature, draws = 0.8, (300, 5000)
    rows, positions = torch.broadcast_tensors(word(*range(draws[0]))[:, None], torch.arange(draws[1])[None])
    log_p = log_probabilities(LOGITS, Sampling(temperature))
    noise = torch.cat([gumbel_noise(11, r, p, 7) for r, p in zip(rows.split(30), positions.split(30), strict=True)])
    expected = exact(temperature, 1.0) * noise.shape[0] * noise.shape[1]

    def p_value(score: Tensor) -> float:
        counts = np.bincount(score.argmax(-1).flatten(), minlength=7)
        return float(stats.chisquare(counts, expected).pvalue)

    assert p_value(log_p + noise) > LEVEL
    favoured = torch.tensor([0.01, 0, 0, 0, 0, 0, 0])
    for biased in (log_p + favoured + noise, log_p / 1.01 + noise, log_p + noise * 1.01):
        assert p_value(biased) < LEVEL


def test_a_choice_does_not_depend_on_its_batch() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(12, 50, generator=generator)
    rows, positions = word(*range(12)), torch.randint(0, 900, (12,), generator=generator)
    for sampling in (Sampling(), Sampling(0.8, 0.95, 6), Sampling(1.3, 1.0, 6)):
        together = choose(logits, sampling, rows, positions)
        order = torch.randperm(12, generator=generator)
        assert torch.equal(choose(logits[order], sampling, rows[order], positions[order]), together[order])
        one_by_one = [choose(logits[i], sampling, rows[i], positions[i]) for i in range(12)]
        assert torch.equal(torch.stack(one_by_one), together)


def test_seed_row_and_position_all_count() -> None:
    flat = torch.zeros(200, 50)
    here = choose(flat, Sampling(1.0, seed=1), torch.zeros(200).long(), torch.arange(200))
    for other in (
        choose(flat, Sampling(1.0, seed=2), torch.zeros(200).long(), torch.arange(200)),
        choose(flat, Sampling(1.0, seed=1), torch.ones(200).long(), torch.arange(200)),
        choose(flat, Sampling(1.0, seed=1), torch.zeros(200).long(), torch.arange(200) + 1),
    ):
        assert float((here == other).float().mean()) < 0.1


@pytest.mark.parametrize("top_p", [0.05, 0.3, 0.5, 0.9, 0.999])
def test_the_nucleus_is_the_smallest_set_that_reaches_its_mass(top_p: float) -> None:
    """Against all 2^8 sets: none with fewer tokens reaches top_p, and none as large has more mass."""
    generator = torch.Generator().manual_seed(7)
    sets = torch.tensor(list(itertools.product([False, True], repeat=8)))
    for logits in 2 * torch.randn(40, 8, generator=generator):
        kept = log_probabilities(logits, Sampling(0.8, top_p)).isfinite()
        p = torch.softmax(logits.double() / 0.8, -1)
        masses, sizes = (sets * p).sum(-1), sets.sum(-1)
        assert int(kept.sum()) == int(sizes[masses >= top_p].min())
        assert float((kept * p).sum()) == float(masses[sizes == kept.sum()].max())


@pytest.mark.parametrize("vocabulary", [40, 600])
def test_a_token_is_out_where_the_mass_before_it_is_top_p_and_in_just_above(vocabulary: int) -> None:
    """To the last place of a float32, in the scores and (where few tokens hold the nucleus) in the choice."""
    logits = 3 * torch.randn(vocabulary, generator=torch.Generator().manual_seed(12))
    ordered, order = torch.log_softmax(logits / 0.8, -1).sort(descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    for rank in (1, 2, 5, 9):
        edge, token = float(before[rank]), int(order[rank])
        for top_p, inside in ((edge, False), (float(np.nextafter(np.float32(edge), np.float32(2))), True)):
            sampling = Sampling(0.8, top_p, seed=3)
            kept = log_probabilities(logits, sampling).isfinite()
            assert int(kept.sum()) == rank + inside and bool(kept[token]) is inside
            positions = torch.arange(2000)
            chosen = choose(logits.expand(2000, -1), sampling, torch.zeros_like(positions), positions)
            assert bool((chosen == token).any()) is inside


def test_kept_tokens_keep_their_probability() -> None:
    """Inside the nucleus scores are those of the whole distribution: renormalising would move all of them alike."""
    kept = log_probabilities(LOGITS, Sampling(0.8, 0.6))
    whole = torch.log_softmax(LOGITS / 0.8, -1)
    assert torch.equal(kept[kept.isfinite()], whole[kept.isfinite()])
    assert 0 < int(kept.isfinite().sum()) < 7


def test_equally_probable_tokens_enter_in_order() -> None:
    assert log_probabilities(torch.zeros(10), Sampling(1.0, 0.35)).isfinite().tolist() == [True] * 4 + [False] * 6


@pytest.mark.parametrize("spread", [1.0, 3.0, 6.0])
def test_ties_on_the_edge_of_the_nucleus(spread: float) -> None:
    """Of tokens with the same logit, as 16 bits make them, those of the lowest index enter: alone and in any batch."""
    logits = (spread * torch.randn(400, 600, generator=torch.Generator().manual_seed(10))).round()
    rows, positions = torch.arange(400), torch.arange(400)
    for top_p in (0.3, 0.6, 0.95):
        sampling = Sampling(0.8, top_p, seed=1)
        wanted = scores(logits, sampling, rows, positions).argmax(-1)
        assert torch.equal(choose(logits, sampling, rows, positions), wanted)
        alone = [choose(logits[i : i + 1], sampling, rows[i : i + 1], positions[i : i + 1]) for i in range(400)]
        assert torch.equal(torch.cat(alone), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zero_temperature_is_the_argmax(dtype: torch.dtype) -> None:
    logits = torch.randn(30, 40, generator=torch.Generator().manual_seed(8)).to(dtype)
    rows, positions = torch.zeros(30).long(), torch.arange(30)
    greedy = Sampling(0.0, 0.3, seed=9)
    assert greedy.greedy and not Sampling(0.1).greedy
    assert torch.equal(choose(logits, greedy, rows, positions), logits.argmax(-1))
    assert torch.equal(scores(logits, greedy, rows, positions), logits.float())
    # A temperature just above is nearly the same; the noise of two close logits may still turn them.
    nearly = choose(logits, Sampling(1e-4, seed=9), rows, positions)
    gap = logits.float().amax(-1) - logits.float().gather(-1, nearly[:, None])[:, 0]
    assert float(gap.max()) < 0.01


def test_the_argmax_of_the_scores_is_the_choice() -> None:
    logits = torch.randn(30, 40, generator=torch.Generator().manual_seed(9)).bfloat16()
    rows, positions = torch.arange(30), torch.arange(30) * 3
    for sampling in (Sampling(), Sampling(0.8, 0.95, 1)):
        found = scores(logits, sampling, rows, positions)
        assert found.dtype == torch.float32
        assert torch.equal(found.argmax(-1), choose(logits, sampling, rows, positions))


@pytest.mark.parametrize("spread", [0.05, 1.0, 4.0])
def test_few_candidates_choose_what_the_whole_vocabulary_does(spread: float) -> None:
    """Nuclei that fit the short list, and (at a small spread) one that needs all tokens."""
    generator = torch.Generator().manual_seed(3)
    logits = spread * torch.randn(200, 2000, generator=generator)
    rows, positions = torch.arange(200) % 5, torch.arange(200)
    sampling = Sampling(0.9, 0.9, seed=4)
    whole = scores(logits, sampling, rows, positions).argmax(-1)
    assert torch.equal(choose(logits, sampling, rows, positions), whole)
