package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/durable"
)

const (
	// Program is the name of islet's program in an archive. The program is at the top or in a
	// single top-level folder. Files in deeper folders may have the same name, such as islet-0.2.0/default/islet.
	Program = "islet"
	// maxProgram is the maximum size of a program in bytes.
	maxProgram = 256 << 20
	// maxEntries is the maximum number of entries of an archive that are searched.
	maxEntries = 10_000
	// maxUnpacked is the maximum number of bytes that are unpacked up to the end of the program.
	maxUnpacked = 2 * maxProgram
)

// elfTypes contains the ELF class and machine of each architecture that islet is built for.
var elfTypes = map[string]struct {
	class   elf.Class
	machine elf.Machine
}{
	"amd64":   {elf.ELFCLASS64, elf.EM_X86_64},
	"arm64":   {elf.ELFCLASS64, elf.EM_AARCH64},
	"arm":     {elf.ELFCLASS32, elf.EM_ARM},
	"riscv64": {elf.ELFCLASS64, elf.EM_RISCV},
}

// Describe reads an archive to its end and returns a release for it, without signatures.
func Describe(version, arch string, archive io.Reader) (*Release, error) {
	sum := sha512.New()
	n, err := io.Copy(sum, io.LimitReader(archive, MaxArchive+1))
	if err != nil {
		return nil, err
	}
	r := &Release{Size: n}
	sum.Sum(r.SHA512[:0])
	for name, value := range map[string]string{"version": version, "arch": arch, "size": fmt.Sprint(n)} {
		if err := r.set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// Save writes a received archive to a new file. If the archive does not have the signed size and
// hash, Save removes the file and returns an error. It does not unpack the archive.
func (r *Release) Save(archive io.Reader, file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	sum := sha512.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(archive, r.Size+1))
	if err != nil {
		return fmt.Errorf("receive the archive: %w", err)
	}
	if n != r.Size {
		return fmt.Errorf("the archive has %s bytes, the release says %d", sizeText(n, r.Size), r.Size)
	}
	if !bytes.Equal(sum.Sum(nil), r.SHA512[:]) {
		return errors.New("the archive is not the signed archive: its SHA-512 differs")
	}
	return f.Sync()
}

// sizeText returns the number n of received bytes. Save stops reading beyond the signed size, so a larger n is only a minimum.
func sizeText(n, size int64) string {
	if n > size {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// Extract unpacks the program of a saved archive to a new file with mode 0755 in dir and returns the file's path. The
// caller removes the file. Before Extract creates the file, it calls checkSpace with the program's size. The function
// checkSpace returns an error if dir has too little free space. If Extract fails, it removes the file. The error contains the name of the
// archive's entry.
func (r *Release) Extract(ctx context.Context, archive, dir string, checkSpace func(size int64) error) (program string, err error) {
	in, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return r.extractWithLimit(ctx, in, maxUnpacked, dir, checkSpace)
}

// extractWithLimit implements Extract with the given limit of unpacked bytes.
func (r *Release) extractWithLimit(
	ctx context.Context, in io.Reader, most int64, dir string, checkSpace func(int64) error,
) (program string, err error) {
	z, err := gzip.NewReader(readUntil(ctx, in))
	if err != nil {
		return "", fmt.Errorf("the archive cannot be unpacked by gzip: %w", err)
	}
	t := tar.NewReader(limitReader(most, z))
	position := "at its beginning"
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the archive has no program %q", Program)
		}
		if err != nil {
			return "", fmt.Errorf("the archive cannot be read %s: %w", position, err)
		}
		if h.Typeflag == tar.TypeReg && isProgram(h.Name) {
			program, err := r.unpackProgram(readUntil(ctx, t), h.Size, dir, checkSpace)
			if err != nil {
				err = fmt.Errorf("entry %.200q of the archive: %w", h.Name, err)
			}
			return program, err
		}
		position = fmt.Sprintf("from entry %.200q on", h.Name)
	}
	return "", fmt.Errorf("the archive has more than %d entries before its program", maxEntries)
}

// isProgram reports whether an entry of an archive has the name of the program.
func isProgram(name string) bool {
	dir, file := path.Split(path.Clean(name))
	return file == Program && strings.Count(dir, "/") <= 1
}

// unpackProgram writes a program of size bytes to a new file in dir, checks its architecture, and returns the path of the file. After an
// error the file is removed.
func (r *Release) unpackProgram(in io.Reader, size int64, dir string, checkSpace func(int64) error) (path string, err error) {
	if size > maxProgram {
		return "", fmt.Errorf("the program has %d bytes, more than %d", size, int64(maxProgram))
	}
	if err := checkSpace(size); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, Program+"-*.new")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			path = ""
		}
	}()
	if n, err := io.Copy(f, in); err != nil || n != size {
		return "", fmt.Errorf("unpack %d bytes of the program: %w", size, errors.Join(err, shortRead(n, size)))
	}
	if err := r.checkArch(f); err != nil {
		return "", err
	}
	// Sync the directory too. If the new program were missing after a power loss, the caller would conclude that it
	// had already renamed the program to its final path.
	if err := errors.Join(f.Chmod(0o755), f.Sync(), durable.SyncDir(dir)); err != nil {
		return "", err
	}
	return filepath.Clean(f.Name()), nil
}

// A readFunc is a function that implements io.Reader.
type readFunc func(b []byte) (int, error)

func (r readFunc) Read(b []byte) (int, error) { return r(b) }

// readUntil returns a reader that returns an error after ctx has ended. gzip notices the end of ctx quickly, because it calls Read at least
// once for every few MiB of unpacked data.
func readUntil(ctx context.Context, in io.Reader) io.Reader {
	return readFunc(func(b []byte) (int, error) {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		return in.Read(b)
	})
}

// limitReader returns a reader that returns an error after the given number of bytes.
func limitReader(most int64, in io.Reader) io.Reader {
	left := most
	return readFunc(func(b []byte) (int, error) {
		if left == 0 {
			return 0, fmt.Errorf("it unpacks to %d MiB or more", most>>20)
		}
		n, err := in.Read(b[:min(int64(len(b)), left)])
		left -= int64(n)
		return n, err
	})
}

// shortRead returns an error if the archive contains only n of size bytes.
func shortRead(n, size int64) error {
	if n == size {
		return nil
	}
	return fmt.Errorf("the archive contains only %d of them", n)
}

// checkArch returns an error unless the file is a program for the release's architecture. It parses only the ELF
// header, so that untrusted input reaches little code.
func (r *Release) checkArch(f io.ReaderAt) error {
	want, known := elfTypes[r.Arch]
	if !known {
		return fmt.Errorf("islet is not built for %q", r.Arch)
	}
	h := io.NewSectionReader(f, 0, int64(binary.Size(elf.Header64{})))
	var e struct { // the headers of both classes begin with these fields
		Ident   [elf.EI_NIDENT]byte
		Type    uint16
		Machine uint16
	}
	if err := binary.Read(h, binary.LittleEndian, &e); err != nil || string(e.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return errors.New("the program is not an ELF file")
	}
	if rest, err := io.Copy(io.Discard, h); err != nil || rest < int64(binary.Size(elf.Header32{})-binary.Size(e)) {
		return errors.New("the program is not an ELF file: its header is cut off")
	}
	class, machine, kind := elf.Class(e.Ident[elf.EI_CLASS]), elf.Machine(e.Machine), elf.Type(e.Type)
	if e.Ident[elf.EI_DATA] != byte(elf.ELFDATA2LSB) || machine != want.machine || class != want.class ||
		kind != elf.ET_EXEC && kind != elf.ET_DYN {
		return fmt.Errorf("the program is built for %v (%v), but the release is for %s", machine, class, r.Arch)
	}
	return nil
}
