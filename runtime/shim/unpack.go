package shim

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

//go:embed all:embedded
var embeddedFiles embed.FS

// ErrNotBuilt is returned if this binary has no embedded shim program.
var ErrNotBuilt = errors.New("this binary was built without its shim: build it with make build")

// Unpack writes the embedded program to dir and returns its path. If dir already contains this
// version, Unpack only returns the path. It removes the files of other versions. Running shims do
// not need the files that they were started from.
func Unpack(dir string) (string, error) {
	packed, err := embeddedFiles.ReadFile("embedded/islet-shim-" + runtime.GOARCH + ".zst")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("create the shim's directory: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("check the shim's directory %s: %w", dir, err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return "", fmt.Errorf("%s is on a file system mounted noexec: choose another directory for the shim", dir)
	}
	sum := sha256.Sum256(packed)
	path := filepath.Join(dir, "islet-shim-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := unpackProgram(packed, path); err != nil {
		return "", fmt.Errorf("unpack the shim to %s: %w", path, err)
	}
	others, _ := filepath.Glob(filepath.Join(dir, "islet-shim-*"))
	for _, o := range others {
		if o != path {
			os.Remove(o)
		}
	}
	return path, nil
}

// unpackProgram writes the program so that the file is complete or missing after a power cut.
func unpackProgram(packed []byte, path string) error {
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.CreateTemp(filepath.Dir(path), ".islet-shim-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = r.WriteTo(f)
	if err = errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
