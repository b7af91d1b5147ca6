package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// archive implements the part of tar that kubectl cp needs: "cf - FILE" and "x... - -C DIR" for regular files.
func archive(args []string) error {
	if len(args) == 3 && args[0] == "cf" {
		return pack(args[2])
	}
	if len(args) == 4 && args[0][0] == '-' && args[2] == "-C" {
		return unpack(args[3])
	}
	return errors.New("usage of tar: cf - FILE, or -xmf - -C DIR")
}

func pack(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	w := tar.NewWriter(os.Stdout)
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o644, Size: int64(len(b))}); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}

func unpack(dir string) error {
	r := tar.NewReader(os.Stdin)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), b, 0o644); err != nil {
			return err
		}
	}
}
