package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keyring"
)

// randomWrites returns calls of methods that write to the tables of the mirror, with random keys of few.
func randomWrites(ctx context.Context, s *Store, random *rand.Rand) []func() error {
	uid := types.UID(fmt.Sprint("uid", random.IntN(6)))
	addr, owner := address(random.IntN(6)), fmt.Sprint("owner", random.IntN(6))
	name, n := fmt.Sprint("n", random.IntN(3)), random.IntN(3)
	data := fmt.Append(nil, n)
	p := pod(string(uid), "web")
	p.Lives = n
	image, ref := fmt.Sprint("sha256:", random.IntN(3)), "r.example/"+name
	source := PullSource{keyring.Secret, "default", "pull", types.UID(name), data}
	volume := VolumeKey{name, string(uid), "/p"}
	claim := []Claim{{types.UID(name), owner, "default", "gpu", data}}
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: name}}}
	return []func() error{
		func() error { return s.UpdatePods(ctx, []Pod{p}, nil) },
		func() error { return s.UpdatePods(ctx, nil, []types.UID{uid}) },
		func() error {
			if err := s.AddLease(ctx, addr, owner); !errors.Is(err, os.ErrExist) {
				return err
			}
			return nil
		},
		func() error { return s.ReleaseLeases(ctx, owner) },
		func() error {
			return s.PutToken(ctx, Token{TokenKey{uid, name, 600}, fmt.Sprint(n), time.Unix(int64(n), 0), time.Unix(700, 0)})
		},
		func() error { return s.PutCertificate(ctx, Certificate{CertificateKey{uid, name, n}, data}) },
		func() error { return s.RemoveCertificates(ctx, uid) },
		func() error { return s.Reject(ctx, uid, Admission{name, "", time.Duration(n), false}) },
		func() error { return s.RemoveRejection(ctx, uid) },
		func() error { return s.Allocate(ctx, map[types.UID]Allocation{uid: {int64(n), spec}}) },
		func() error { return s.GiveDevices(ctx, []Devices{{uid, name, "serial", n, data}}) },
		func() error { return s.TakeDevices(ctx, uid, "serial") },
		func() error { return s.PutClaims(ctx, claim) },
		func() error { return s.RemoveClaims(ctx, claim) },
		func() error { return s.PutVolume(ctx, Volume{volume, data}) },
		func() error { return s.RemoveVolume(ctx, volume) },
		func() error { return s.BeginPull(ctx, BegunPull{ref, image}) },
		func() error { return s.PutPull(ctx, Pull{image, ref, source}, ref) },
		func() error { return s.PutPull(ctx, Pull{image, ref, PullSource{}}, "") },
		func() error { return s.DeletePulls(ctx, []string{image}) },
		func() error { return s.AddImport(ctx, image, name) },
		func() error { return s.SetMeta(ctx, name, fmt.Sprint(n)) },
	}
}

// TestMirrorFollowsGroups checks that the mirror has the rows of the database, each once, after groups of random writes of the same few
// rows, which share transactions. Some groups have more sets of changed rows than are read one by one. In others, some writes fail after
// they have changed rows.
func TestMirrorFollowsGroups(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { followGroups(t, dir) })
}

func followGroups(t *testing.T, dir string) {
	s := open(t, filepath.Join(dir, "islet.db"))
	defer s.Close()
	ctx, random := t.Context(), rand.New(rand.NewPCG(1, 2))
	must(t, s.MarkFilled(ctx))
	shared, large, failed := 0, 0, 0 // numbers of groups, and of writes that failed
	for round := range 60 {
		release := hold(t, s)
		results := make(chan error)
		n := 0
		start := func(do func() error) {
			n++
			go func() { results <- do() }()
		}
		for range 1 + random.IntN(2*maxRowSets) {
			all := randomWrites(ctx, s, random)
			start(all[random.IntN(len(all))])
		}
		switch round % 3 {
		case 1:
			for i := range maxRowSets + 1 {
				start(func() error { return s.AddLease(ctx, address(256*(1+round)+i), "owner1") })
			}
		case 2:
			start(func() error {
				err := s.commit(ctx, func(tx *transaction) error {
					return errors.Join(tx.execOn(textRows("owner", "owner1"), "DELETE FROM leases WHERE owner = 'owner1'"), fs.ErrInvalid)
				})
				if !errors.Is(err, fs.ErrInvalid) {
					return fmt.Errorf("the write that fails: %w", err)
				}
				failed++
				return nil
			})
		}
		synctest.Wait() // all writes wait for the writer, so that they share a transaction
		start(func() error {
			return s.commit(ctx, func(tx *transaction) error {
				if len(tx.changed) > 1 {
					shared++
				}
				if slices.Contains(tx.changed["leases"], rowSet{}) {
					large++
				}
				return nil
			})
		})
		synctest.Wait()
		release()
		for range n {
			must(t, <-results)
		}
		compareMirror(t, s, filepath.Join(dir, fmt.Sprint(round)))
	}
	if shared < 30 || large < 20 || failed < 20 {
		t.Errorf("%d groups changed several tables, %d had too many sets, %d writes failed", shared, large, failed)
	}
}

// compareMirror checks that the mirror has the rows of the database, each once. It creates a database at the path.
func compareMirror(t *testing.T, s *Store, path string) {
	t.Helper()
	copied := open(t, path)
	defer copied.Close()
	must(t, s.mirror.restore(t.Context(), copied.db))
	must(t, copied.MarkFilled(t.Context()))
	if now, mirrored := mirroredRows(t, s.db), mirroredRows(t, copied.db); !slices.Equal(now, mirrored) {
		t.Fatalf("%s: the mirror has %q, the database %q", path, mirrored, now)
	}
	for _, shape := range mirroredShapes() {
		var n int
		must(t, s.db.QueryRow("SELECT count(*) FROM "+shape.table).Scan(&n))
		if got := len(s.mirror.tables[shape.table]); got != n {
			t.Errorf("%s: the mirror has %d rows of %s, the database %d", path, got, shape.table, n)
		}
	}
}
