"""Drives `orch trace convert` as a user would: every format, the heads of real files, refusals, what is left behind.

    test_convert.py ORCH SOURCE
"""

import collections
import csv
import gzip
import io
import json
import os
import sqlite3
import sys
import tarfile
import unittest

from program import SHARED, Run, orch

HEADS = SHARED / "formats"
ESTIMATE = ["--tokens-per-word", "1.3"]
FORMATS = ("azure csv energon internvl kaldi lhotse llama-factory llava mooncake ms-swift nemo omnibal qwen-vl "
           "servegen").split()

if not HEADS.is_dir():
    print(f"SKIPPED: no {HEADS}; conversions of real files are not checked", file=sys.stderr)


class Convert(Run):
    def convert(self, path, *options):
        """Metadata, samples and what was said of them."""
        result = orch("trace", "convert", *options, path, self.out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        self.assertEqual(orch("trace", "validate", self.out).returncode, 0)
        return lines[0], lines[1:], result.stderr

    def refused(self, message, path, *options):
        result = orch("trace", "convert", *options, path, self.out)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out")], [])
        return result.stderr

    def simulate(self):
        result = orch("simulate", "--trace", self.out, "--model", "mllm-10b", "--cluster", "h100-8x400g", "--gpus", "8",
                      "--batch", "2", "--steps", "1")
        self.assertEqual(result.returncode, 0, result.stderr)

    def head(self, name):
        if not HEADS.is_dir():
            self.skipTest(f"no {HEADS}")
        return HEADS / name

    def test_help(self):
        text = orch("trace", "convert", "--help").stdout
        self.assertEqual(text.count("  orch trace convert "), 2)
        for name in FORMATS:
            self.assertIn(f"\n  {name} ", text)

    def test_metadata_and_how_it_knew(self):
        path = self.file("m.jsonl", '{"timestamp": 5, "input_length": 7, "output_length": 1}\n')
        metadata, samples, said = self.convert(path)
        self.assertEqual(metadata, {"orchmllm_trace": 1, "name": "m.jsonl", "source": "m.jsonl (mooncake)",
                                    "kind": "inference"})
        self.assertEqual(samples, [{"id": "mooncake-0", "task": "mooncake", "text": 7, "t": 0.005}])
        self.assertIn("read as mooncake (rows have timestamp, input_length, output_length)", said)
        self.out = self.folder / "packed.jsonl.gz"
        self.assertEqual(orch("trace", "convert", "--from", "mooncake", path, self.out).returncode, 0)
        self.assertEqual(len(gzip.decompress(self.out.read_bytes()).splitlines()), 2)

    def test_refusals_leave_nothing(self):
        for name in FORMATS:
            self.assertIn(name, self.refused("not recognised", self.file("notes.txt", "what is this\n")))
        self.refused("no such format", self.file("a", "x"), "--from", "parquet")
        self.refused("absent: No such file", self.folder / "absent")
        bad = self.file("m.jsonl", '{"audio_filepath":"a","duration":1}\n' * 5000 + '{"audio_filepath":"a","duration":-1}\n')
        self.refused(f"orch: error: {bad}:5001: duration is -1, expected seconds above 0", bad)
        self.refused("no samples (1 incomplete ones skipped)", self.file("n.jsonl", '{"audio_filepath":"a"}'), "--from", "nemo",
                     "--skip-incomplete")
        self.refused("448x448", self.file("m2.jsonl", ""), "--image-size", "448")
        self.refused("448x448", self.file("m2.jsonl", ""), "--image-size", "449,448")
        self.refused("--image-size: the width", self.file("m2.jsonl", ""), "--image-size", "0x448")
        self.refused("--tokens-per-word", self.file("m2.jsonl", ""), "--tokens-per-word", "0")
        self.refused("--tokens-per-word", self.file("m2.jsonl", ""), "--tokens-per-word", "nan")
        words = self.file("w.jsonl", '{"audio_filepath":"a","duration":1,"text":"b"}\n')
        self.refused(f"{words}:1: the text has no token counts, expected --tokens-per-word R", words)

    def test_skip_incomplete_counts(self):
        path = self.file("m.jsonl", '{"audio_filepath":"a","duration":1}\n{"audio_filepath":"a"}\n')
        self.refused(":2: no duration", path, "--from", "nemo")
        _, samples, said = self.convert(path, "--skip-incomplete")
        self.assertEqual(len(samples), 1)
        self.assertIn("1 samples, 1 incomplete ones skipped", said)

    def energon(self, text=b"two words", media=True):
        """A dataset of two shards with an image each, a caption, and a clip."""
        root = self.folder / "dataset"
        (root / ".nv-meta").mkdir(parents=True)
        (root / "shards").mkdir()
        database = sqlite3.connect(root / ".nv-meta" / "index.sqlite")
        database.executescript("""
            CREATE TABLE samples (tar_file_id INTEGER, sample_key TEXT, sample_index INTEGER, byte_offset INTEGER, byte_size INTEGER);
            CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, content_byte_offset INTEGER,
                                       content_byte_size INTEGER);""")
        if media:
            database.execute("CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_type TEXT, metadata_json TEXT)")
        for shard in range(2):
            with tarfile.open(root / "shards" / f"{shard}.tar", "w") as tar:
                for name, content in (("jpg", b"JPEG"), ("txt", text), ("json", b"{}"), ("mp4", b"MPEG")):
                    info = tarfile.TarInfo(f"{shard}.{name}")
                    info.size = len(content)
                    offset = tar.offset + 512
                    tar.addfile(info, io.BytesIO(content))
                    database.execute("INSERT INTO sample_parts VALUES (?, 0, ?, ?, ?)", (shard, name, offset, len(content)))
            database.execute("INSERT INTO samples VALUES (?, ?, 0, 0, 0)", (shard, str(shard)))
            if media:
                database.execute("INSERT INTO media_metadata VALUES (?, 'image', ?)",
                                 (f"{shard}.jpg", json.dumps({"width": 640, "height": 480 + shard, "format": "JPEG"})))
                database.execute("INSERT INTO media_metadata VALUES (?, 'av', ?)",
                                 (f"{shard}.mp4", json.dumps({"video_duration": 2.5, "video_num_frames": 60, "video_width": 320,
                                                              "video_height": 240, "audio_duration": 2.5})))
        database.commit()
        database.close()
        (root / ".nv-meta" / ".info.json").write_text('{"shard_counts": {"shards/0.tar": 1, "shards/1.tar": 1}}')
        (root / ".nv-meta" / "split.yaml").write_text(
            "exclude: []\nsplit_parts:\n  train:\n  - shards/0.tar\n  val:\n  - shards/{1..1}.tar\n")
        return root

    def need_energon(self):
        if "not in this build" in orch("trace", "convert", "--help").stdout:
            print("SKIPPED: built without SQLite and yaml-cpp; Energon datasets are not checked", file=sys.stderr)
            self.skipTest("no SQLite or yaml-cpp")

    def test_energon(self):
        self.need_energon()
        root = self.energon()
        first = {"id": "0", "task": "train", "text": 3, "images": [[640, 480]],
                 "video": [{"frames": 60, "seconds": 2.5, "size": [320, 240]}]}
        _, samples, said = self.convert(root, "--tokens-per-word", "1.5")
        self.assertEqual(samples[0], first)
        self.assertEqual((samples[1]["id"], samples[1]["task"], samples[1]["images"]), ("1", "val", [[640, 481]]))
        self.assertIn("read as energon (the folder has .nv-meta)", said)
        self.assertIn('parts "json" were not read', said)
        _, samples, _ = self.convert(root / ".nv-meta", "--tokens-per-word", "1.5", "--only", "train")
        self.assertEqual(samples, [first])
        (self.out).unlink()
        self.refused('no entry "test" (--only), there are: train, val', root, "--only", "test")
        self.refused('sample "0": the text has no token counts', root)
        (root / "shards" / "0.tar").unlink()
        self.refused("0.tar with the text is not there", root, *ESTIMATE)
        split = root / ".nv-meta" / "split.yaml"
        split.write_text("split_parts: {train: [[")
        self.refused(f"{split}:1: not a split file", root)
        split.write_text("split_parts: {train: ['{0..x}']}")
        self.refused("a shard's number", root)
        index = root / ".nv-meta" / "index.sqlite"
        split.unlink()
        database = sqlite3.connect(index)
        database.executescript("DROP TABLE samples; CREATE VIEW samples AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x "
                               "FROM c) SELECT 0 AS tar_file_id, x AS sample_key, 0 AS sample_index FROM c;")
        database.close()
        self.refused(f"{index}: samples is no table", root)
        index.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
        self.refused(f"{index}: ", root)

    def test_energon_without_media_metadata(self):
        self.need_energon()
        self.refused("no such table: media_metadata, expected an index of `energon prepare", self.energon(media=False))

    def test_heads_of_omnibal(self):
        for name in ("ai2d_train_12k", "chartqa_train_18k", "synthdog_en"):
            path = self.head(f"omnibal_{name}_wh_token_lengths.head.json")
            rows = json.loads(path.read_text())
            _, samples, _ = self.convert(path)
            self.assertEqual([sample["text"] for sample in samples],
                             [row["token_num"] - 256 * row["image_flags"] for row in rows])
            self.assertEqual([sample.get("tokens", {"vision": []})["vision"] for sample in samples],
                             [[[1024, 256]] * row["image_flags"] for row in rows])
            self.simulate()

    def test_heads_of_lists(self):
        for name, kind in (("omnibal_internvl_sft_1.2M.json", "omnibal"), ("internvl_1_2_finetune_meta.json", "internvl"),
                           ("llamafactory_dataset_info.json", "llama-factory")):
            said = self.refused("is not there", self.head(name))
            self.assertIn(f"read as {kind}", said)
            self.refused("no samples", self.head(name), "--skip-incomplete")

    def test_heads_of_speech(self):
        manifest = self.head("nemo_librispeech_test_clean_manifest.head.jsonl")
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        _, samples, _ = self.convert(manifest, *ESTIMATE)
        for sample, row in zip(samples, rows, strict=True):
            self.assertAlmostEqual(sample["audio"][0], row["duration"], delta=5.01e-7)
        self.assertEqual([sample["text"] for sample in samples], [round(len(row["text"].split()) * 1.3) for row in rows])
        self.simulate()

        _, samples, _ = self.convert(self.head("lhotse_cuts_libri.json"), *ESTIMATE)
        self.assertEqual([(s["audio"], s["text"]) for s in samples], [([10.0], 4)])
        path = self.head("lhotse_mini_librispeech_recordings.jsonl.gz")
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        _, samples, said = self.convert(path)
        self.assertEqual([(s["id"], s["audio"]) for s in samples], [(row["id"], [row["duration"]]) for row in rows])
        self.assertIn("text is 0", said)
        self.simulate()

        lines = [line.split() for line in self.head("kaldi_mini_librispeech_utt2dur").read_text().splitlines()]
        _, samples, _ = self.convert(self.head("kaldi_mini_librispeech_utt2dur"))
        self.assertEqual([(s["id"], s["audio"]) for s in samples], [(key, [float(value)]) for key, value in lines])
        self.simulate()
        _, segments, _ = self.convert(self.head("kaldi_mini_librispeech_segments"))
        self.assertEqual(segments, samples)
        lines = [line.split() for line in self.head("kaldi_mini_librispeech_utt2num_frames").read_text().splitlines()]
        _, samples, _ = self.convert(self.head("kaldi_mini_librispeech_utt2num_frames"), "--frame-shift", "0.01")
        self.assertEqual([s["audio"] for s in samples], [[round(int(value) * 0.01, 6)] for _, value in lines])
        texts = self.head("kaldi_mini_librispeech_text").read_text()
        self.file("data/text", texts)
        self.file("data/segments", self.head("kaldi_mini_librispeech_segments").read_text())
        _, samples, _ = self.convert(self.folder / "data", *ESTIMATE)
        words = {line.split()[0]: len(line.split()) - 1 for line in texts.splitlines()}
        self.assertEqual([s["text"] for s in samples], [round(words[s["id"]] * 1.3) for s in samples])

        path = self.head("s3prl_len_for_bucket_train-clean-100.head.csv")
        rows = list(csv.DictReader(path.read_text().splitlines()))
        _, samples, _ = self.convert(path, "--from", "csv", "--columns", "id=file_path,audio=length/16000")
        for sample, row in zip(samples, rows, strict=True):
            self.assertEqual(sample["id"], row["file_path"])
            self.assertAlmostEqual(sample["audio"][0], int(row["length"]) / 16000, delta=5.01e-7)
        self.simulate()

    def test_heads_of_conversations(self):
        for name in ("audio", "video", "video_audio"):
            path = self.head(f"llamafactory_mllm_{name}_demo.json")
            rows = json.loads(path.read_text())
            self.out.unlink(missing_ok=True)
            self.refused("without durations", path, *ESTIMATE)
            _, samples, _ = self.convert(path, *ESTIMATE, "--audio-seconds", "5", "--video-seconds", "10")
            self.assertEqual(len(samples), len(rows))
            for row, sample in zip(rows, samples):
                words = [text.replace("<video>", " ").replace("<audio>", " ").split()
                         for text in (message["content"] for message in row["messages"])]
                self.assertEqual(sample["text"], round(sum(map(len, words)) * 1.3))
                self.assertEqual(len(sample.get("audio", [])), len(row.get("audios", [])))
                self.assertEqual(len(sample.get("video", [])), len(row.get("videos", [])))

    def test_heads_of_inference(self):
        for name in ("code", "conv"):
            path = self.head(f"AzureLLMInferenceTrace_{name}.head.csv")
            rows = list(csv.DictReader(path.read_text().splitlines()))
            metadata, samples, _ = self.convert(path)
            self.assertEqual(metadata["kind"], "inference")
            self.assertEqual([s["text"] for s in samples], [int(row["ContextTokens"]) for row in rows])
            self.assertEqual(samples[0]["t"], 0)
            self.simulate()
        path = self.head("azure_lmm_multimodal_ten_rows.csv")
        self.out.unlink()
        self.refused(":3: ContextTokens holds text and 1 images together, expected --tokens-per-image N", path)
        _, samples, _ = self.convert(path, "--tokens-per-image", "200", "--encoder-ratio", "4")
        self.assertEqual([s["text"] for s in samples], [770, 749, 764, 78, 1524, 1364, 933, 464, 972, 841])
        self.assertEqual(len(samples[5]["tokens"]["vision"]), 16)
        self.assertAlmostEqual(samples[9]["t"], 7 * 86400 - 0.305, places=6)
        self.simulate()

        path = self.head("mooncake_conversation_trace.head.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        _, samples, _ = self.convert(path)
        self.assertEqual([(s["text"], s["t"]) for s in samples],
                         [(row["input_length"], row["timestamp"] / 1000) for row in rows])
        self.simulate()

        path = self.head("servegen_mm-image_chunk-0-trace.csv")
        _, samples, _ = self.convert(path, "--encoder-ratio", "4")
        expected = sum(600 * float(line.split(",")[1]) for line in path.read_text().splitlines())
        self.assertLess(abs(len(samples) - expected), 0.03 * expected)
        self.assertLessEqual({unit[1] for s in samples for unit in s["tokens"]["vision"]}, set(range(500, 1300)))
        texts = collections.Counter(s["text"] for s in samples if s["t"] < 21600)
        self.assertEqual(set(texts), {136, 372})
        self.simulate()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
