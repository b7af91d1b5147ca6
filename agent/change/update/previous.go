package update

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
)

// ErrNoPrevious is the error of StagePrevious if no program is kept.
var ErrNoPrevious = errors.New("no previous program is kept: islet update keeps the program that it replaces. To return to an older " +
	"version from its archive, use islet update --older ARCHIVE")

// FindPrevious returns the program that the last update replaced, which is kept next to the installed one, and its version. The path is
// empty if there is none.
func FindPrevious(installed string) (path, version string) {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(installed), release.KeptFile("*")))
	for _, path := range found {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), release.Program+"-"), release.KeptSuffix)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && version != "" {
			return path, version
		}
	}
	return "", ""
}

// stagedPrevious is the name of the staged copy of a kept program. RemoveOld removes it.
const stagedPrevious = release.Program + "-previous.new"

// StagePrevious prepares the kept program for a trial, like Stage. It needs no network, and no keys, because the program was installed
// here before.
func (s *Stager) StagePrevious(ctx context.Context, tell Progress) (*StagedProgram, error) {
	kept, version := FindPrevious(s.Program)
	if kept == "" {
		return nil, ErrNoPrevious
	}
	staged := filepath.Join(filepath.Dir(s.Program), stagedPrevious)
	if err := os.Remove(staged); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	tell.report("testing", 0, 0)
	sum, err := checksum(kept)
	if err != nil {
		return nil, err
	}
	if err := os.Link(kept, staged); err != nil {
		return nil, fmt.Errorf("stage the previous program: %w", err)
	}
	if err := s.test(ctx, staged, version, sum); err != nil {
		return nil, err
	}
	s.Log.Info("the previous version of islet is ready to be tried", "version", version, "program", staged)
	return &StagedProgram{Version: version, Program: staged, Sum: sum}, nil
}

// checksum returns the SHA-512 of a file in hexadecimal.
func checksum(path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
