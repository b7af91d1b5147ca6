package main

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
	"github.com/islet-edge/islet/internal/signed"
)

const (
	// defaultValid is the period after which an index expires, unless the plan has another one.
	defaultValid = 14 * 24 * time.Hour
	// maxPlan is the maximum size of a file with a plan, in bytes.
	maxPlan = 64 << 10
)

// signIndex writes the first index of a version, whose first ring is open. It replaces the index of another version, but not the index of
// the same one, which knows its failures.
func signIndex(file, plan string, keyFiles, archives []string, out io.Writer, now time.Time) error {
	keys, err := readKeys(keyFiles)
	if err != nil {
		return err
	}
	p, err := readPlan(plan)
	if err != nil {
		return fmt.Errorf("%s: %w", plan, err)
	}
	for _, a := range archives {
		if err := addArchive(p, a); err != nil {
			return err
		}
	}
	unlock, err := lock(file)
	if err != nil {
		return err
	}
	defer unlock()
	var before time.Time
	old, err := readIndex(file, keys)
	if err == nil {
		if old.Version == p.Version {
			return fmt.Errorf("%s is already the index of version %s, and knows its failures: use sign rollout, or remove it",
				file, old.Version)
		}
		before = old.Signed
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p.Rings[0].Opened = now.UTC().Truncate(time.Second)
	x, err := rollout.New(*p, now, before)
	if err != nil {
		return err
	}
	x.Sign(keys...)
	if err := durable.Write(file, x.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: version %s, ring %s is open\n", file, p.Version, p.Rings[0].Name)
	return nil
}

// readIndex reads an index. If there are keys, one of them must have signed it. Otherwise anybody who can write the file could have a
// change signed.
func readIndex(file string, keys []ed25519.PrivateKey) (*rollout.Index, error) {
	text, err := regular.Read(file, rollout.MaxText)
	if err != nil {
		return nil, err
	}
	x, err := rollout.Parse(text)
	if err == nil && len(keys) > 0 {
		err = verifyFormer(x, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return x, nil
}

// verifyFormer returns an error unless one of the keys has signed an index. The error names the keys that have.
func verifyFormer(x *rollout.Index, keys []ed25519.PrivateKey) error {
	var own []signed.Key
	for _, k := range keys {
		own = append(own, signed.PublicKey(k))
	}
	signers := x.Signers()
	isOwn := func(id string) bool { return slices.ContainsFunc(own, func(k signed.Key) bool { return k.ID() == id }) }
	if len(signers) > 0 && !slices.ContainsFunc(signers, isOwn) {
		return fmt.Errorf("it is signed by %.100q and by none of the given keys: to replace a key, name the former key too; if that is "+
			"lost, remove the index, and begin it again with sign index", strings.Join(signers, ", "))
	}
	return x.Verify(own, 1, "the given keys")
}

// lock waits until no other command changes the index. Otherwise cron could write its copy over the pause of a person.
func lock(file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.Name(), err), f.Close())
	}
	return f.Close, nil
}

// readPlan reads the rings of a plan.
func readPlan(file string) (*rollout.Plan, error) {
	text, err := regular.Read(file, maxPlan)
	if err != nil {
		return nil, err
	}
	var plan struct {
		Valid metav1.Duration `json:"valid"`
		Rings []rollout.Ring  `json:"rings"`
	}
	plan.Valid.Duration = defaultValid
	if err := yaml.UnmarshalStrict(text, &plan); err != nil {
		return nil, err
	}
	if len(plan.Rings) == 0 {
		return nil, errors.New("it has no rings")
	}
	for i := range plan.Rings {
		r := &plan.Rings[i]
		r.NotBefore = r.NotBefore.UTC()
		if !r.Opened.IsZero() || r.Failed != 0 {
			return nil, fmt.Errorf("ring %q: opened and failed are written by sign rollout", r.Name)
		}
		if r.MinSucceeded < 1 && i+1 < len(plan.Rings) {
			return nil, fmt.Errorf("ring %q: minSucceeded is missing, which is how many of its nodes must run the version before the next "+
				"ring opens", r.Name)
		}
	}
	return &rollout.Plan{Valid: plan.Valid, Rings: plan.Rings}, nil
}

// addArchive adds an archive to the plan, by the release next to it.
func addArchive(p *rollout.Plan, file string) error {
	text, err := regular.Read(file+".release", release.MaxText)
	if err != nil {
		return fmt.Errorf("the release must be next to the archive: %w", err)
	}
	r, err := release.Parse(text)
	if err != nil {
		return fmt.Errorf("%s.release: %w", file, err)
	}
	if info, err := os.Stat(file); err != nil {
		return err
	} else if info.Size() != r.Size {
		return fmt.Errorf("%s has %d bytes, the release says %d", file, info.Size(), r.Size)
	}
	if p.Version == "" {
		p.Version = r.Version
	}
	if p.Version != r.Version {
		return fmt.Errorf("%s has version %s, the first archive has %s", file, r.Version, p.Version)
	}
	p.Archives = append(p.Archives, rollout.Archive{Arch: r.Arch, File: filepath.Base(file), SHA512: hex.EncodeToString(r.SHA512[:])})
	return nil
}
