package link

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/inputweight"
)

const (
	pairTime = "2006-01-02-15-04-05"
	// maxCertificate is the maximum size of a decoded certificate with its chain, in bytes.
	maxCertificate = 1 << 20

	// keepPairs is the number of pairs that stay: the current pair, and the previous one, in case the disk loses the current one or the API
	// server rejects it.
	keepPairs = 2
)

// pairFiles manages the files of certificates for one purpose (client or server). A kubelet uses the same files:
//
//	kubelet-client-2026-11-21-03-50-00.pem   certificate and key in one file
//	kubelet-client-current.pem               a link to the pair in use
//	kubelet-client.key.tmp                   the key of a pending request
//
// A file gets its name after its content is on the disk, and the symbolic link is replaced by a rename. Therefore, after a power cut,
// either the old pair or the new pair is intact and in use.
type pairFiles struct {
	dir    string
	prefix string // kubelet-client or kubelet-server
}

// A pair is a certificate with its key.
type pair struct {
	pem  []byte // certificate and key
	cert *tls.Certificate
}

func (p pairFiles) currentPath() string { return filepath.Join(p.dir, p.prefix+"-current.pem") }

func (p pairFiles) pendingPath() string { return filepath.Join(p.dir, p.prefix+".key.tmp") }

// load returns the pair in use. If the symbolic link or its target is missing or broken, load sets the link to the best intact pair. If
// there is no pair, the error is fs.ErrNotExist.
func (p pairFiles) load(now time.Time) (*pair, error) {
	have, err := loadPair(p.currentPath())
	if err == nil {
		return have, nil
	}
	files, listErr := p.rank(now, "")
	if listErr != nil {
		return nil, errors.Join(err, listErr)
	}
	for _, file := range slices.Backward(files) {
		if have, other := loadPair(file); other == nil {
			return have, p.link(file)
		}
	}
	return nil, err
}

// rank returns the paths of all pairs, the best one last: one that is intact, has not expired, was in use before, and is the newest. The
// time in the name of a file is not its age, because the clock of this machine may have been ahead.
func (p pairFiles) rank(now time.Time, before string) ([]string, error) {
	files, err := p.listFiles()
	type merits struct {
		valid, used int
		from, until time.Time
	}
	all := map[string]merits{}
	for _, file := range files {
		var m merits
		if have, err := loadPair(file); err == nil {
			m = merits{valid: 1, from: have.cert.Leaf.NotBefore, until: have.cert.Leaf.NotAfter}
			if !now.After(m.until) {
				m.valid = 2
			}
		}
		if filepath.Base(file) == filepath.Base(before) {
			m.used = 1
		}
		all[file] = m
	}
	slices.SortFunc(files, func(a, b string) int {
		x, y := all[a], all[b]
		return cmp.Or(cmp.Compare(x.valid, y.valid), cmp.Compare(x.used, y.used), x.from.Compare(y.from), x.until.Compare(y.until),
			cmp.Compare(a, b))
	})
	return files, err
}

// listFiles returns the paths of all pairs.
func (p pairFiles) listFiles() ([]string, error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		middle, ours := strings.CutPrefix(e.Name(), p.prefix+"-")
		middle, isPEM := strings.CutSuffix(middle, ".pem")
		if _, timeErr := time.Parse(pairTime, middle); ours && isPEM && timeErr == nil {
			files = append(files, filepath.Join(p.dir, e.Name()))
		}
	}
	return files, err
}

// makePair combines a certificate that the server has issued with its key.
func makePair(cert, key []byte) (*pair, error) {
	if err := inputweight.PEM(maxCertificate, string(cert)); err != nil {
		return nil, fmt.Errorf("the certificate %w", err)
	}
	made, err := parsePair(slices.Concat(bytes.TrimSpace(cert), []byte("\n"), key))
	if err != nil {
		return nil, fmt.Errorf("the certificate does not match its key: %w", err)
	}
	return made, nil
}

// save stores a certificate and its key as the pair in use. It removes the pending key and all other pairs but the previous one.
func (p pairFiles) save(cert, key []byte, now time.Time) (*pair, error) {
	file := filepath.Join(p.dir, p.prefix+"-"+now.Format(pairTime)+".pem")
	made, err := makePair(cert, key)
	if err != nil {
		return nil, err
	}
	if err := writeFile(file, made.pem); err != nil {
		return nil, err
	}
	before, _ := os.Readlink(p.currentPath()) // empty if the disk has lost the link
	if err := p.link(file); err != nil {
		return nil, err
	}
	files, err := p.rank(now, before)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return f == file })
	for _, other := range files[:max(0, len(files)-keepPairs+1)] {
		_ = os.Remove(other)
	}
	_ = os.Remove(p.pendingPath())
	torn, err := filepath.Glob(filepath.Join(p.dir, "."+p.prefix+"*")) // incomplete files
	if err != nil {
		return nil, err
	}
	for _, file := range torn {
		_ = os.Remove(file)
	}
	return made, nil
}

func (p pairFiles) link(file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	next := filepath.Join(p.dir, p.prefix+"-updated.pem")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(file, next); err != nil {
		return err
	}
	if err := os.Rename(next, p.currentPath()); err != nil {
		return err
	}
	return durable.SyncDir(p.dir)
}

// pendingKey returns the key of the pending request. If there is no such key, it creates and stores one. A node that restarts while it
// waits for approval therefore repeats the same request.
func (p pairFiles) pendingKey() (crypto.Signer, []byte, error) {
	if text, err := os.ReadFile(p.pendingPath()); err == nil {
		if key, err := parseKey(text); err == nil {
			return key, text, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, text, writeFile(p.pendingPath(), text)
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func loadPair(file string) (*pair, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parsePair(text)
}

// parsePair parses a certificate, its chain and its key.
func parsePair(text []byte) (*pair, error) {
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	return &pair{pem: text, cert: &cert}, nil
}

// writeFile writes a file of mode 0600 atomically and durably. It creates the directory of the file.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Write(path, data, 0o600)
}
