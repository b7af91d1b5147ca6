// Command pack compresses the shim program for embedding:
//
//	go run ./runtime/shim/pack <program> <out.zst>
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack <program> <out.zst>")
		os.Exit(2)
	}
	if err := packProgram(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// packProgram compresses a program. The output is the same for identical programs.
func packProgram(program, out string) error {
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp := out + ".tmp"
	if err := os.WriteFile(tmp, w.EncodeAll(raw, nil), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, out)
}
