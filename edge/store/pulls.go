package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keyring"
)

// A Pull says by whose credentials an image was pulled. No credential is in it.
type Pull struct {
	Image  string     // its ID
	Name   string     // the repository, without tag and digest; empty: pulled, and nobody knows by whom
	Source PullSource // zero: every pod of the node may use the image under this name
}

// A PullSource is the object that a credential is from: a Secret, with a hash of it, or
// a service account.
type PullSource struct {
	Kind, Namespace, Name string
	UID                   types.UID
	Hash                  []byte // of a Secret's, by Fingerprint
}

// accountPrefix is what the name of a service account has in the table: no Secret can be
// named so.
const accountPrefix = keyring.ServiceAccount + "/"

// A BegunPull has begun and was not recorded: it goes on, has failed, or was broken off.
type BegunPull struct {
	Ref string // the reference that was to be pulled
	Was string // the ID of the image that it meant before; empty: none
}

// Fingerprint is a hash that nobody without the key file can make or try guesses on.
func (s *Store) Fingerprint(data []byte) ([]byte, error) {
	key, err := s.seal.hashKey()
	if err != nil {
		return nil, fmt.Errorf("hash a credential: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return mac.Sum(nil), nil
}

// BeginPull durably notes that a pull begins, so that what it brings is known to be
// pulled even if the power fails before PutPull.
func (s *Store) BeginPull(ctx context.Context, b BegunPull) error {
	err := s.commit(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM pulls WHERE image = '' AND name = ? AND uid != ?", b.Ref, b.Was); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO pulls (image, name, namespace, secret, uid, hash) VALUES ('', ?, '', '', ?, x'')", b.Ref, b.Was)
		return err
	})
	if err != nil {
		return fmt.Errorf("note that the pull of %s begins: %w", b.Ref, err)
	}
	return nil
}

// EndPull takes BeginPull back.
func (s *Store) EndPull(ctx context.Context, ref string) error {
	err := s.commit(ctx, func(tx *sql.Tx) error { return endPull(ctx, tx, ref) })
	if err != nil {
		return fmt.Errorf("note that the pull of %s ended: %w", ref, err)
	}
	return nil
}

func endPull(ctx context.Context, tx *sql.Tx, ref string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM pulls WHERE image = '' AND name = ?", ref)
	return err
}

// PutPull durably adds who pulled an image and ends the pull of ref; empty: none. The
// new hash of a Secret replaces the old one, and what every pod may use needs no
// Secrets any more.
func (s *Store) PutPull(ctx context.Context, p Pull, ref string) error {
	c := p.Source
	if c.Kind == keyring.ServiceAccount {
		c.Name = accountPrefix + c.Name
	}
	err := s.commit(ctx, func(tx *sql.Tx) error {
		if c.Name == "" && p.Name != "" {
			if _, err := tx.ExecContext(ctx, "DELETE FROM pulls WHERE image = ? AND name = ? AND secret != ''", p.Image, p.Name); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO pulls (image, name, namespace, secret, uid, hash)
			SELECT ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM pulls WHERE image = ? AND name = ? AND secret = '')
			ON CONFLICT DO UPDATE SET hash = excluded.hash WHERE hash IS NOT excluded.hash`,
			p.Image, p.Name, c.Namespace, c.Name, string(c.UID), append([]byte{}, c.Hash...), p.Image, p.Name)
		if err != nil || ref == "" {
			return err
		}
		return endPull(ctx, tx, ref)
	})
	if err != nil {
		return fmt.Errorf("note who pulled image %s: %w", p.Image, err)
	}
	return nil
}

// DeletePulls durably forgets who pulled images.
func (s *Store) DeletePulls(ctx context.Context, images []string) error {
	images = slices.DeleteFunc(slices.Clone(images), func(id string) bool { return id == "" })
	if len(images) == 0 {
		return nil
	}
	err := s.commit(ctx, func(tx *sql.Tx) error {
		for _, id := range images {
			if _, err := tx.ExecContext(ctx, "DELETE FROM pulls WHERE image = ?", id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget who pulled images: %w", err)
	}
	return nil
}

// PullsOf gives who pulled an image. None: it was not pulled.
func (s *Store) PullsOf(ctx context.Context, image string) ([]Pull, error) {
	return s.pulls(ctx, "WHERE image = ? AND image != ''", image)
}

// PulledImages gives the IDs of all images that were pulled.
func (s *Store) PulledImages(ctx context.Context) ([]string, error) {
	all, err := s.pulls(ctx, "WHERE image != ''")
	var ids []string
	for _, p := range all {
		ids = append(ids, p.Image)
	}
	return slices.Compact(ids), err
}

// BegunPulls gives those that were not recorded.
func (s *Store) BegunPulls(ctx context.Context) ([]BegunPull, error) {
	all, err := s.pulls(ctx, "WHERE image = ''")
	var begun []BegunPull
	for _, p := range all {
		begun = append(begun, BegunPull{Ref: p.Name, Was: string(p.Source.UID)})
	}
	return begun, err
}

func (s *Store) pulls(ctx context.Context, where string, args ...any) ([]Pull, error) {
	var all []Pull
	err := s.query(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var p Pull
		var uid string
		if err := rows.Scan(&p.Image, &p.Name, &p.Source.Namespace, &p.Source.Name, &uid, &p.Source.Hash); err != nil {
			return err
		}
		p.Source.UID = types.UID(uid)
		if name, is := strings.CutPrefix(p.Source.Name, accountPrefix); is {
			p.Source.Kind, p.Source.Name, p.Source.Hash = keyring.ServiceAccount, name, nil
		} else if name != "" {
			p.Source.Kind = keyring.Secret
		}
		all = append(all, p)
		return nil
	}, "SELECT image, name, namespace, secret, uid, hash FROM pulls "+where+" ORDER BY image, name, namespace, secret, uid", args...)
	if err != nil {
		return nil, fmt.Errorf("read who pulled images: %w", err)
	}
	return all, nil
}
