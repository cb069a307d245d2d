"""Drives `orch trace scan` on real media files in folders and shards: numbers, damage, resumption, hostile inputs.

    test_scan.py ORCH SOURCE
"""

import gzip
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zlib

try:
    from PIL import Image
except ImportError:
    print("SKIPPED: no python3-pil; nothing of trace scan is tested", file=sys.stderr)
    sys.exit(0)
from program import ORCH, Run, check_schema, orch

FFMPEG = shutil.which("ffmpeg")
if not FFMPEG:
    print("SKIPPED: no ffmpeg; sound and video of trace scan are not tested", file=sys.stderr)


def scan(*arguments, **options):
    return orch("trace", "scan", *arguments, **options)


def picture(width, height, mode="RGB"):
    return Image.new(mode, (width, height), 1 if mode == "P" else None)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


def make_images():
    """Name → (bytes, width, height)."""
    image = picture(64, 48)
    noise = Image.effect_noise((700, 500), 90)
    out = {
        "plain.png": (encoded(image, "PNG"), 64, 48),
        "palette.png": (encoded(image.convert("P"), "PNG"), 64, 48),
        "deep.png": (encoded(Image.new("I;16", (5, 9)), "PNG"), 5, 9),
        "plain.jpg": (encoded(image, "JPEG"), 64, 48),
        "gray.jpeg": (encoded(image.convert("L"), "JPEG"), 64, 48),
        "ink.jpg": (encoded(image.convert("CMYK"), "JPEG"), 64, 48),
        "progressive.jpg": (encoded(image, "JPEG", progressive=True), 64, 48),
        "profile.jpg": (encoded(image, "JPEG", icc_profile=b"x" * 300000, exif=turned(8)), 48, 64),
        "lossy.webp": (encoded(noise.convert("RGB"), "WEBP"), 700, 500),
        "lossless.webp": (encoded(image, "WEBP", lossless=True), 64, 48),
        "extended.webp": (encoded(picture(30, 20, "RGBA"), "WEBP", icc_profile=b"x" * 50), 30, 20),
        "moving.webp": (encoded(image, "WEBP", save_all=True, append_images=[picture(64, 48)], duration=10), 64, 48),
        "plain.gif": (encoded(image, "GIF"), 64, 48),
        "moving.gif": (encoded(image, "GIF", save_all=True, append_images=[picture(64, 48)]), 64, 48),
        "plain.bmp": (encoded(image, "BMP"), 64, 48),
        "plain.tif": (encoded(image, "TIFF"), 64, 48),
        "packed.tiff": (encoded(image, "TIFF", compression="tiff_lzw"), 64, 48),
        "turned.tif": (encoded(image, "TIFF", tiffinfo={274: 6}), 48, 64),
        "large.tif": (encoded(Image.effect_noise((1600, 1300), 90), "TIFF"), 1600, 1300),
        "wrong-name.png": (encoded(image, "JPEG"), 64, 48),
    }
    for orientation in range(1, 9):
        width, height = (64, 48) if orientation < 5 else (48, 64)
        out[f"turned{orientation}.jpg"] = (encoded(image, "JPEG", exif=turned(orientation)), width, height)
    return out


def ffmpeg(folder, name, *arguments):
    path = pathlib.Path(folder) / name
    subprocess.run([FFMPEG, "-v", "error", "-y", *arguments, path], check=True, stdin=subprocess.DEVNULL, timeout=120)
    return path.read_bytes()


def make_sounds(folder):
    """Name → (bytes, seconds, tolerance). MP3 and AAC frames are longer than what they hold."""
    def sine(seconds, rate):
        return ["-f", "lavfi", "-i", f"sine=d={seconds}:r={rate}"]
    exact = {"a.wav": (1.5, 44100), "b.flac": (2.25, 48000), "c.aiff": (0.75, 16000), "d.wav": (0.1, 8000), "e.caf": (0.5, 16000),
             "f.w64": (1.25, 16000)}
    out = {name: (ffmpeg(folder, name, *sine(s, r)), s, 1e-6) for name, (s, r) in exact.items()}
    out["g.ogg"] = (ffmpeg(folder, "g.ogg", *sine(3.5, 44100), "-c:a", "libvorbis"), 3.5, 1e-3)
    out["h.opus"] = (ffmpeg(folder, "h.opus", *sine(1.5, 48000)), 1.5, 1e-6)
    out["i.m4a"] = (ffmpeg(folder, "i.m4a", *sine(1.5, 44100)), 1.5, 1e-3)
    out["j.mp3"] = (ffmpeg(folder, "j.mp3", *sine(4, 44100)), 4.0, 0.06)
    out["k.mp3"] = (ffmpeg(folder, "k.mp3", *sine(4, 44100), "-q:a", "5"), 4.0, 0.06)
    out["l.mp3"] = (ffmpeg(folder, "l.mp3", *sine(4, 44100), "-write_xing", "0"), 4.0, 0.08)
    out["m.aac"] = (ffmpeg(folder, "m.aac", *sine(4, 44100)), 4.0, 0.4)
    # Far longer than what is kept of a shard's member: the last page says how long it is.
    out["long.ogg"] = (ffmpeg(folder, "long.ogg", "-f", "lavfi", "-i", "anoisesrc=d=400:r=44100", "-c:a", "libvorbis",
                              "-q:a", "3"), 400.0, 1e-3)
    return out


def make_videos(folder):
    """Name → (bytes, seconds, width, height)."""
    def test_picture(size="320x240"):
        return ["-f", "lavfi", "-i", f"testsrc=s={size}:d=2:r=10,format=yuv420p"]
    mp4 = ffmpeg(folder, "a.mp4", *test_picture(), "-c:v", "mpeg4")
    out = {"a.mp4": mp4}
    out["b.mp4"] = ffmpeg(folder, "b.mp4", *test_picture(), "-c:v", "mpeg4", "-movflags", "+faststart")
    out["c.mp4"] = ffmpeg(folder, "c.mp4", *test_picture(), "-c:v", "mpeg4", "-movflags", "frag_keyframe+empty_moov")
    out["d.mkv"] = ffmpeg(folder, "d.mkv", *test_picture(), "-c:v", "mpeg4")
    out["e.webm"] = ffmpeg(folder, "e.webm", *test_picture(), "-c:v", "libvpx")
    out["f.avi"] = ffmpeg(folder, "f.avi", *test_picture(), "-c:v", "mpeg4")
    out["g.mov"] = ffmpeg(folder, "g.mov", *test_picture(), "-f", "lavfi", "-i", "sine=d=2", "-c:v", "mpeg4")
    out = {name: (data, 2.0, 320, 240) for name, data in out.items()}
    turned_video = ffmpeg(folder, "h.mp4", "-i", str(pathlib.Path(folder) / "a.mp4"), "-c", "copy", "-metadata:s:v", "rotate=90")
    out["h.mp4"] = (turned_video, 2.0, 240, 320)
    # Above 17 MiB with the index at the end.
    large = ffmpeg(folder, "large.mp4", "-f", "lavfi", "-i", "nullsrc=s=640x480:d=3:r=10,geq=random(1)*255:128:128",
                   "-c:v", "mjpeg", "-q:v", "1", "-pix_fmt", "yuvj444p")
    out["large.mp4"] = (large, 3.0, 640, 480)
    return out


def tar_bytes(members, mode="w", **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Scan(Run):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.images = make_images()
            cls.sounds = make_sounds(folder) if FFMPEG else {}
            cls.videos = make_videos(folder) if FFMPEG else {}
        cls.media = {name: made[0] for made_of in (cls.images, cls.sounds, cls.videos) for name, made in made_of.items()}

    def good(self, *arguments):
        """The samples of a scan; its trace is valid and its journal gone."""
        self.result = scan(*arguments, "--out", self.out)
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.assertFalse(pathlib.Path(f"{self.out}.journal").exists())
        valid = orch("trace", "validate", self.out)
        self.assertEqual(valid.returncode, 0, valid.stderr)
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        self.assertEqual(lines[0]["samples"], len(lines) - 1)
        return lines[1:]

    def bad(self, message, *arguments):
        result = scan(*arguments, "--out", self.out)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn(message, result.stderr)
        self.assertTrue(result.stderr.splitlines()[-1].startswith("orch: error: "), result.stderr)
        self.assertFalse(self.out.exists())
        self.assertEqual(result.stdout, "")

    def report(self, *arguments):
        result = scan(*arguments, "--out", self.out, "--report", self.folder / "report")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads((self.folder / "report").read_text())
        check_schema("scan", report)
        return report

    # --- numbers ------------------------------------------------------------------------------------------------

    def check_numbers(self, samples):
        by_id = {sample["id"]: sample for sample in samples}
        self.assertEqual(set(by_id), {os.path.splitext(name)[0] for name, _ in self.members()})
        for name, (_, width, height) in self.images.items():
            self.assertEqual(by_id[f"image/{name.replace('.', '-')}"]["images"], [[width, height]], name)
        for name, (_, seconds, tolerance) in self.sounds.items():
            self.assertAlmostEqual(by_id[f"audio/{name.replace('.', '-')}"]["audio"][0], seconds, delta=tolerance, msg=name)
        for name, (_, seconds, width, height) in self.videos.items():
            video = by_id[f"video/{name.replace('.', '-')}"]["video"]
            self.assertEqual(video, [{"seconds": seconds, "size": [width, height]}], name)

    def members(self):
        for kind, made_of in (("audio", self.sounds), ("image", self.images), ("video", self.videos)):
            for name, made in sorted(made_of.items()):
                yield f"{kind}/{name.replace('.', '-')}{os.path.splitext(name)[1]}", made[0]

    def test_numbers(self):
        for name, data in self.members():
            self.file(f"in/{name}", data)
        in_folder = self.good(self.folder / "in")
        self.check_numbers(in_folder)
        self.assertEqual(len(self.result.stderr.splitlines()), 1 if FFMPEG else 0, self.result.stderr)
        ends = {".tar": lambda b: b, ".tar.gz": gzip.compress}
        if shutil.which("zstd"):
            ends[".tar.zst"] = lambda b: subprocess.run(["zstd", "-1"], input=b, capture_output=True, check=True).stdout
        else:
            print("SKIPPED: no zstd; .tar.zst shards are not tested", file=sys.stderr)
        for end, pack in ends.items():
            shard = self.file(f"shard{end}", pack(tar_bytes(self.members())))
            by_id = sorted(self.good(shard), key=lambda sample: sample["id"].encode())
            self.assertEqual(by_id, in_folder, end)

    def test_help(self):
        text = orch("trace", "scan", "--help").stdout
        self.assertEqual(text.count("  orch trace scan"), 2)

    # --- pairing, text, order -----------------------------------------------------------------------------------

    def test_pairs_in_shards(self):
        png, jpg = self.images["plain.png"][0], self.images["turned6.jpg"][0]
        shard = self.file("a.tar", tar_bytes([
            ("./x/002.left.png", png), ("./x/002.right.jpg", jpg), ("./x/002.txt", b"two words"), ("./x/002.cls", b"1"),
            ("x/001.json", b'{"caption": "three words here", "key": 1}'), ("x/001.png", png),
            ("x/._001.png", b"resource fork"), ("003.txt", b"short"), ("003.json", b'{"caption": "not counted too"}'),
            ("004.json", b'{"width": 3}')]))
        samples = self.good(shard, "--tokens-per-word", 10, "--task", "cap\"tion", "--source", "here", "--license", "MIT")
        self.assertEqual(samples, [
            {"id": "x/002", "task": "cap\"tion", "text": 20, "images": [[64, 48], [48, 64]]},
            {"id": "x/001", "task": "cap\"tion", "text": 30, "images": [[64, 48]]},
            {"id": "003", "task": "cap\"tion", "text": 10}])
        self.assertIn("ignored members: .cls 1", self.result.stderr)
        head = json.loads(self.out.read_text().splitlines()[0])
        self.assertEqual(head, {"orchmllm_trace": 1, "name": "out", "source": "here", "license": "MIT",
                                "kind": "training", "samples": 3})

    def test_returning_keys(self):
        png = self.images["plain.png"][0]
        shard = self.file("a.tar", tar_bytes([("1.png", png), ("2.png", png), ("1.txt", b"late")]))
        self.assertEqual(len(self.good(shard, "--tokens-per-word", 1)), 3)
        self.assertIn("keys that come back later", self.result.stderr)

    def test_text(self):
        png = self.images["plain.png"][0]
        talk = {"conversations": [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", "value": "A cat."}]}
        self.file("in/a.png", png)
        self.file("in/a.json", json.dumps(talk))
        self.file("in/b.txt", "\u00e9t\u00e9\u00a0x  two\n")
        self.bad("--tokens-per-word", self.folder / "in")
        self.assertEqual(os.listdir(self.folder), ["in"])
        samples = self.good(self.folder / "in", "--tokens-per-word", 1.5)
        self.assertEqual(samples, [{"id": "a", "text": 8, "images": [[64, 48]]}, {"id": "b", "text": 3}])
        self.assertEqual(self.good(self.folder / "in", "--tokens-per-word", 0), [{"id": "a", "text": 0, "images": [[64, 48]]}])
        self.file("in/c.json", "[1, 2")
        self.file("in/d.txt", "x " * (1 << 20))
        self.assertEqual(len(self.good(self.folder / "in", "--tokens-per-word", 1)), 2)
        self.assertIn("c.json: is not JSON", self.result.stderr)
        self.assertIn("d.txt: is longer", self.result.stderr)

    def test_folder_order_and_lists(self):
        png, gif = self.images["plain.png"][0], self.images["plain.gif"][0]
        for name in ("b/2.png", "b/2.gif", "b/10.png", "a.png", "a-1.png", "B.v2.png", "b.png", ".hidden.png", ".git/x.png"):
            self.file(f"in/{name}", gif if name.endswith("gif") else png)
        self.file("in/z.tar", tar_bytes([("t.png", png)]))
        self.file("in/b/a.tar", tar_bytes([("s.png", png)]))
        ids = [sample["id"] for sample in self.good(self.folder / "in")]
        self.assertEqual(ids, ["B.v2", "a", "a-1", "b", "b/10", "b/2", "s", "t"])
        listed = [self.folder / "in/b/2.png", self.folder / "in/a.png", self.folder / "in/b/2.gif", self.folder / "in/z.tar",
                  self.folder / "in/b.png"]
        list_file = self.file("list", "\n".join(map(str, listed)) + "\r\n\n")
        samples = self.good("--files", list_file)
        self.assertEqual([sample["id"].split("/in/")[-1] for sample in samples], ["b/2", "a", "t", "b"])
        self.assertEqual(samples[0]["images"], [[64, 48], [64, 48]])

    def test_same_for_any_jobs(self):
        for number in range(9):
            self.file(f"in/s{number}.tar.gz", gzip.compress(tar_bytes(
                [(f"{i}.jpg", self.images[f"turned{1 + (i + number) % 8}.jpg"][0]) for i in range(60)] + [("bad.png", b"no")])))
        for i in range(2500):
            self.file(f"in/loose/{i}.gif", self.images["plain.gif"][0][:-1])
        outs = []
        for jobs in (1, 4, 3):
            self.good(self.folder / "in", "--jobs", jobs)
            outs.append((self.out.read_bytes(), self.result.stderr))
        self.assertEqual(outs[0], outs[1])
        self.assertEqual(outs[0], outs[2])
        self.assertEqual(outs[0][0].count(b"\n"), 1 + 9 * 60 + 2500)

    def test_an_input_named_twice_counts_twice(self):
        shard = self.file("a.tar", tar_bytes([("1.png", self.images["plain.png"][0])]))
        self.assertEqual([sample["id"] for sample in self.good(shard, shard, "--jobs", 2)], ["1", "1"])

    def test_gzip_output(self):
        self.file("in/a.png", self.images["plain.png"][0])
        result = scan(self.folder / "in", "--out", self.folder / "t.jsonl.gz")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(gzip.decompress((self.folder / "t.jsonl.gz").read_bytes()).count(b"\n"), 2)

    # --- resumption ---------------------------------------------------------------------------------------------

    def many_shards(self, count=40):
        noise = random.Random(1).randbytes(4 << 20)
        shard = gzip.compress(tar_bytes([(f"{i:03d}.jpg", self.images["plain.jpg"][0]) for i in range(50)]
                                        + [("noise.bin", noise), ("z.png", b"corrupt")]), 1)
        first = self.file("in/00.tar.gz", shard)
        for i in range(1, count):
            os.link(first, self.folder / f"in/{i:02d}.tar.gz")

    def finished(self, journal):
        return journal.read_bytes().count(b'"kind":"done"') if journal.exists() else 0

    def kill_after(self, parts, *arguments):
        """Starts a scan and kills it once so many more parts are done; false if it ended before."""
        journal = pathlib.Path(f"{self.out}.journal")
        before = self.finished(journal)
        process = subprocess.Popen([ORCH, "trace", "scan", *map(str, arguments), "--out", self.out],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and self.finished(journal) < before + parts:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def test_continues_after_kill(self):
        self.many_shards()
        self.good(self.folder / "in", "--jobs", 1)
        whole, messages = self.out.read_bytes(), self.result.stderr
        self.out.unlink()
        journal = pathlib.Path(f"{self.out}.journal")
        kills = [self.kill_after(parts, self.folder / "in", "--jobs", jobs) for parts, jobs in ((1, 1), (5, 2), (9, 4))]
        self.assertEqual(kills, [True] * 3)
        self.assertFalse(self.out.exists())
        # A record that is cut short, as a crash of the machine leaves it.
        journal.write_bytes(journal.read_bytes()[:-5] + b"\0")
        done = self.finished(journal)
        self.assertGreater(done, 5)
        self.good(self.folder / "in", "--jobs", 2)
        self.assertEqual(self.out.read_bytes(), whole)
        self.assertIn("parts are in", self.result.stderr.splitlines()[0])
        self.assertEqual(self.result.stderr.splitlines()[1:], messages.splitlines())

    def test_damaged_journal(self):
        self.many_shards(20)
        self.good(self.folder / "in")
        whole = self.out.read_bytes()
        self.out.unlink()
        journal = pathlib.Path(f"{self.out}.journal")
        self.assertTrue(self.kill_after(3, self.folder / "in", "--jobs", 1))
        text = journal.read_bytes()
        random_ = random.Random(2)
        for _ in range(6):
            at = random_.randrange(len(text))
            journal.write_bytes(text[:at] + bytes([text[at] ^ 1 << random_.randrange(8)]) + text[at + 1:])
            self.good(self.folder / "in")
            self.assertEqual(self.out.read_bytes(), whole)
        journal.write_bytes(random_.randbytes(5000))
        self.good(self.folder / "in")
        self.assertEqual(self.out.read_bytes(), whole)

    def test_changed_inputs_are_scanned_again(self):
        self.many_shards(20)
        journal = pathlib.Path(f"{self.out}.journal")
        self.assertTrue(self.kill_after(3, self.folder / "in", "--jobs", 1))
        (self.folder / "in/00.tar.gz").unlink()
        self.file("in/00.tar.gz", gzip.compress(tar_bytes([("new.png", self.images["plain.png"][0])])))
        samples = self.good(self.folder / "in", "--task", "x")
        self.assertEqual(samples[0], {"id": "new", "task": "x", "text": 0, "images": [[64, 48]]})
        self.assertEqual(len(samples), 1 + 19 * 50)
        self.assertTrue(all(sample["task"] == "x" for sample in samples))

    def test_one_scan_an_output(self):
        self.many_shards()
        journal = pathlib.Path(f"{self.out}.journal")
        process = subprocess.Popen([ORCH, "trace", "scan", self.folder / "in", "--out", self.out], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while not self.finished(journal):
            time.sleep(0.002)
        second = scan(self.folder / "in", "--out", self.out)
        running = process.poll() is None
        process.wait()
        if running:
            self.assertEqual(second.returncode, 2)
            self.assertIn("another scan", second.stderr)

    # --- damage -------------------------------------------------------------------------------------------------

    def test_corrupt_media(self):
        random_ = random.Random(3)
        count = 0
        for name, data in self.media.items():
            end = os.path.splitext(name)[1]
            cuts = [0, 1, 2, 4, 8, 12, 16, 20, 24, 30, 40, 60, 100, 200, len(data) // 2, len(data) - 1]
            variants = [data[:cut] for cut in cuts]
            for _ in range(24):
                flipped = bytearray(data)
                for _ in range(random_.randint(1, 12)):
                    at = random_.randrange(min(len(flipped), random_.choice([32, 200, 2000, 1 << 30])))
                    flipped[at] = random_.choice([0, 0xff, flipped[at] ^ 0x80, random_.randrange(256)])
                variants.append(bytes(flipped))
            variants = [variant for variant in variants if len(variant) < 1 << 22]
            for i, variant in enumerate(variants):
                self.file(f"in/{name.replace('.', '-')}-{i}{end}", variant)
            count += len(variants)
        samples = self.good(self.folder / "in")
        report = self.report(self.folder / "in")
        self.assertEqual(len(samples) + report["corrupt_members"], count)
        self.assertEqual(report["samples_left_out"], report["corrupt_members"])
        self.assertGreater(report["corrupt_members"], 9 * len(self.media))
        self.assertEqual(len(report["corrupt"]), report["corrupt_members"])
        self.assertEqual(self.result.stderr.count("orch: corrupt:"), 21)
        self.assertIn(f"and {report['corrupt_members'] - 20} more", self.result.stderr)

    def test_corrupt_member_leaves_its_sample_out(self):
        png = self.images["plain.png"][0]
        shard = self.file("a.tar", tar_bytes([("1.png", png), ("2.png", png[:20]), ("2.txt", b"a b"), ("3.png", png)]))
        self.assertEqual([s["id"] for s in self.good(shard, "--tokens-per-word", 1)], ["1", "3"])
        self.assertIn(f"{shard}: 2.png: the PNG header is damaged", self.result.stderr)
        self.out.unlink()
        self.bad("2.png", shard, "--tokens-per-word", 1, "--strict")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.tar"])
        good = self.file("b.tar", tar_bytes([("1.png", png)]))
        for jobs in (1, 4):
            self.bad("a.tar: 2.png", good, shard, self.file("c.tar", b"no"), "--strict", "--jobs", jobs, "--tokens-per-word", 1)

    def test_damaged_shards(self):
        jpg = self.images["plain.jpg"][0]
        plain = tar_bytes([(f"{i}.jpg", jpg) for i in range(5)] + [("5.bin", bytes(9000)), ("6.jpg", jpg)])
        for end, whole in ((".tar", plain), (".tar.gz", gzip.compress(plain))):
            known = self.good(self.file(f"whole{end}", whole))
            for cut in list(range(1, len(whole), max(1, len(whole) // 40))) + [len(whole) - 1]:
                shard = self.file(f"cut{end}", whole[:cut])
                result = scan(shard, "--out", self.out)
                self.assertIn(result.returncode, (0, 2), result.stderr)
                if result.returncode == 0:
                    lines = [json.loads(line) for line in self.out.read_text().splitlines()[1:]]
                    self.assertEqual(lines, known[:len(lines)])
            random_ = random.Random(4)
            for _ in range(40):
                flipped = bytearray(whole)
                for _ in range(5):
                    flipped[random_.randrange(len(flipped))] = random_.randrange(256)
                self.assertIn(scan(self.file(f"cut{end}", bytes(flipped)), "--out", self.out).returncode, (0, 2))
        result = scan(self.file("cut.tar", plain[:512 + len(jpg) // 2]), "--out", self.out)
        self.assertIn("cut.tar: ", result.stderr)
        self.assertIn("no samples found", result.stderr)
        two = self.good(self.file("cut.tar", plain[:-10240 - 700]), self.file("other.tar", plain))
        self.assertIn("cut.tar: Truncated", self.result.stderr)
        self.assertEqual(len(two), 5 + 6)

    # --- hostile inputs -----------------------------------------------------------------------------------------

    def limited(self, *arguments):
        """Within a minute and 600 MiB (a sanitizer's share included)."""
        begin = time.time()
        with open(self.folder / "stderr", "w") as stderr:
            process = subprocess.Popen([ORCH, "trace", "scan", *map(str, arguments), "--out", self.out],
                                       stdout=subprocess.DEVNULL, stderr=stderr)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        text = (self.folder / "stderr").read_text()
        self.assertIn(process.returncode, (0, 2), text)
        self.assertLess(time.time() - begin, 60)
        self.assertLess(usage.ru_maxrss, 600 << 10)
        return process.returncode, text

    def test_bombs(self):
        zeros = gzip.compress(tar_bytes([("a.png", self.images["plain.png"][0])])[:1024] + bytes(1 << 20), 1)
        member = tarfile.TarInfo("b.png")
        member.size = 1 << 40
        head = tar_bytes([("a.png", self.images["plain.png"][0])])[:1024] + member.tobuf()
        bomb = gzip.compress(head + bytes(300 << 20), 9)
        code, text = self.limited(self.file("bomb.tar.gz", bomb))
        self.assertIn("256 times", text)
        self.assertEqual(code, 0)
        self.assertIn("Truncated", self.limited(self.file("claims.tar", head + bytes(5000)))[1])
        self.limited(self.file("zeros.tar.gz", zeros))
        with open(self.folder / "sparse.tar", "wb") as file:
            file.truncate(1 << 40)
        self.limited(self.folder / "sparse.tar")
        with open(self.folder / "sparse.jpg", "wb") as file:
            file.write(self.images["plain.jpg"][0][:2])
            file.truncate(1 << 40)
        self.limited(self.folder / "sparse.jpg")
        for name in ("sparse.mp3", "sparse.mp4", "sparse.ogg", "sparse.mkv", "sparse.tif"):
            with open(self.folder / name, "wb") as file:
                file.truncate(1 << 40)
            self.limited(self.folder / name)

    def test_huge_sizes(self):
        png = self.images["plain.png"][0]
        def sized(size):
            header = b"IHDR" + size + png[24:29]
            return png[:12] + header + zlib.crc32(header).to_bytes(4, "big") + png[33:]
        huge = sized((2**31 - 1).to_bytes(4, "big") * 2)
        zero = sized(bytes(8))
        gif = self.images["plain.gif"][0]
        wide = gif[:6] + b"\xff\xff\xff\xff" + gif[10:]
        for name, data in (("huge.png", huge), ("zero.png", zero), ("wide.gif", wide)):
            self.file(f"in/{name}", data)
        self.file("in/large.png", sized((900_000).to_bytes(4, "big") * 2))
        self.assertEqual(self.good(self.folder / "in"), [{"id": "large", "text": 0, "images": [[900_000, 900_000]]},
                                                         {"id": "wide", "text": 0, "images": [[65535, 65535]]}])

    def test_playlists_open_nothing(self):
        self.file("a.ts", b"")
        for name in ("a.mp4", "b.mkv", "c.mp3"):
            self.file(f"in/{name}", f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{self.folder}/a.ts\n")
        self.file("in/d.mp4", f"ffconcat version 1.0\nfile {self.folder}/a.ts\n")
        self.bad("of 4 corrupt members", self.folder / "in")

    def test_links_devices_and_names(self):
        png = self.images["plain.png"][0]
        self.file("in/a.png", png)
        self.file("elsewhere/b.png", png)
        os.symlink("..", self.folder / "in/loop")
        os.symlink(".", self.folder / "in/self.png.d")
        os.symlink(self.folder / "elsewhere", self.folder / "in/linked")
        os.symlink(self.folder / "elsewhere/b.png", self.folder / "in/link.png")
        os.symlink("nowhere.png", self.folder / "in/broken.png")
        os.symlink("circle.png", self.folder / "in/circle.png")
        os.mkfifo(self.folder / "in/pipe.png")
        os.symlink("/dev/zero", self.folder / "in/zero.png")
        name = os.fsencode(self.folder / "in") + b"/bad\xff\x1b\xc3\xa9.png"
        with open(name, "wb") as file:
            file.write(png)
        ids = [sample["id"] for sample in self.good(self.folder / "in")]
        self.assertEqual(ids, ["a", "bad\\xff\\x1b\u00e9", "link"])
        self.assertIn("broken.png: No such file", self.result.stderr)
        self.assertIn("circle.png", self.result.stderr)
        ids = [sample["id"] for sample in self.good(self.folder / "in", "--follow-symlinks")]
        self.assertEqual(sorted(ids)[:3], ["a", "bad\\xff\\x1b\u00e9", "link"])
        self.assertIn("linked/b", " ".join(ids) + " ".join(ids).replace("loop/elsewhere/b", "linked/b"))
        self.out.unlink()
        self.bad("neither a folder nor a file", "/dev/zero")
        self.bad("neither a folder nor a file", self.folder / "in/pipe.png")
        self.bad("No such file", self.folder / "absent")
        self.bad("no folder, no shard", self.file("a.xyz", b""))
        self.bad("no samples found", self.file("empty.tar", b""))
        (self.folder / "empty").mkdir()
        self.bad("no samples found", self.folder / "empty")
        self.bad("no input")
        self.assertEqual(scan(self.folder / "in").returncode, 2)
        self.assertEqual(scan(self.folder / "in", "--out", self.folder / "no/where").returncode, 2)

    def test_names_in_shards(self):
        png = self.images["plain.png"][0]
        names = ["\u00e9t\u00e9/\u4f8b.png", "bad\udcff\udcfe.png", "x" * 300 + "/y.png", "\u00fc" * 200 + ".png"]
        ids = ["\u00e9t\u00e9/\u4f8b", "bad\\xff\\xfe", "x" * 300 + "/y", "\u00fc" * 200]
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            shard = self.file("a.tar", tar_bytes([(name, png) for name in names], format=form))
            for locale in ("C", "C.UTF-8", "en_US.ISO-8859-1"):
                result = scan(shard, "--out", self.out, env={**os.environ, "LC_ALL": locale})
                self.assertEqual(result.returncode, 0, result.stderr)
                got = [json.loads(line)["id"] for line in self.out.read_text().splitlines()[1:]]
                self.assertEqual(got, ids, (form, locale))
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for kind, name in ((tarfile.SYMTYPE, "l.png"), (tarfile.LNKTYPE, "h.png"), (tarfile.CHRTYPE, "c.png"), (tarfile.DIRTYPE, "d.png")):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc/passwd"
                tar.addfile(info)
        self.out.unlink()
        self.bad("no samples found", self.file("kinds.tar", out.getvalue()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
