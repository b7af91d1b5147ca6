package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keyring"
)

// A Pull records that an image was pulled, and from which object the credential came. It does not contain the credential.
type Pull struct {
	Image  string     // image ID
	Name   string     // the repository, without tag and digest; empty if the image was pulled with an unknown credential
	Source PullSource // zero if every pod on this node may use the image with this name
}

// A PullSource identifies the object that contained the credential. The object is a Secret or a service account. For a Secret, the
// PullSource also contains a hash of its content.
type PullSource struct {
	Kind, Namespace, Name string
	UID                   types.UID
	Hash                  []byte // hash of a Secret, by Fingerprint
}

// accountPrefix is the prefix of a service account's name in the table. The name of a Secret cannot begin with it.
const accountPrefix = keyring.ServiceAccount + "/"

// A BegunPull is a pull that has begun, and for which PutPull was not called. It is in progress, has failed, or was interrupted.
type BegunPull struct {
	Ref string // the reference to pull
	Was string // ID of the image that had the reference before; empty if no image had it
}

// Fingerprint returns a keyed hash of the data. Without the key file, nobody can compute the hash or test guesses.
func (s *Store) Fingerprint(data []byte) ([]byte, error) {
	key, err := s.seal.hashKey()
	if err != nil {
		return nil, fmt.Errorf("hash a credential: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return mac.Sum(nil), nil
}

// BeginPull durably records that a pull begins. If the power fails before PutPull, the image is therefore still treated as pulled.
func (s *Store) BeginPull(ctx context.Context, b BegunPull) error {
	err := s.commit(ctx, func(tx *transaction) error {
		set := textRows("name", b.Ref)
		err := tx.execOn(set, "DELETE FROM pulls WHERE image = '' AND name = ? AND uid != ?", b.Ref, b.Was)
		if err != nil {
			return err
		}
		return tx.execOn(set, `
			INSERT OR IGNORE INTO pulls (image, name, namespace, secret, uid, hash) VALUES ('', ?, '', '', ?, x'')`, b.Ref, b.Was)
	})
	if err != nil {
		return fmt.Errorf("record that the pull of %s begins: %w", b.Ref, err)
	}
	return nil
}

// EndPull durably removes the record that BeginPull has made for the reference.
func (s *Store) EndPull(ctx context.Context, ref string) error {
	err := s.commit(ctx, func(tx *transaction) error { return endPull(tx, ref) })
	if err != nil {
		return fmt.Errorf("record that the pull of %s ended: %w", ref, err)
	}
	return nil
}

func endPull(tx *transaction, ref string) error {
	return tx.execOn(textRows("name", ref), "DELETE FROM pulls WHERE image = '' AND name = ?", ref)
}

// maxPullSources is the maximum number of objects that are recorded for an image and a name. It is more than the pods of a node. Without a
// maximum, an image that stays for years would get a record from each namespace that ever existed.
const maxPullSources = 256

// PutPull durably records a pull. It also removes the record of BeginPull for the reference, unless the reference is empty. If the hash of
// a Secret has changed, the new hash replaces the old one. The record of an earlier object with the same name, which no longer exists, is
// removed. After a pull without a credential, every pod may use the image. PutPull then removes the records with a credential.
func (s *Store) PutPull(ctx context.Context, p Pull, ref string) error {
	c := p.Source
	if c.Kind == keyring.ServiceAccount {
		c.Name = accountPrefix + c.Name
	}
	err := s.commit(ctx, func(tx *transaction) error {
		set := textRows("image", p.Image)
		if c.Name == "" && p.Name != "" {
			err := tx.execOn(set, "DELETE FROM pulls WHERE image = ? AND name = ? AND secret != ''", p.Image, p.Name)
			if err != nil {
				return err
			}
		}
		err := tx.execOn(set, `
			INSERT INTO pulls (image, name, namespace, secret, uid, hash)
			SELECT ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM pulls WHERE image = ? AND name = ? AND secret = '')
			ON CONFLICT DO UPDATE SET hash = excluded.hash WHERE hash IS NOT excluded.hash`,
			p.Image, p.Name, c.Namespace, c.Name, string(c.UID), append([]byte{}, c.Hash...), p.Image, p.Name)
		if err == nil {
			err = dropOldSources(tx, p.Image, p.Name, c)
		}
		if err != nil || ref == "" {
			return err
		}
		return endPull(tx, ref)
	})
	if err != nil {
		return fmt.Errorf("record the pull of image %s: %w", p.Image, err)
	}
	return nil
}

// dropOldSources removes the records of earlier objects with the name of c, and arbitrary records beyond maxPullSources. A pod whose record
// was removed needs another pull with its credential. The name c.Name has the form of the table.
func dropOldSources(tx *transaction, image, name string, c PullSource) error {
	if c.Name == "" || c.UID == "" {
		return nil
	}
	set := textRows("image", image)
	err := tx.execOn(set, "DELETE FROM pulls WHERE image = ? AND name = ? AND namespace = ? AND secret = ? AND uid != ?",
		image, name, c.Namespace, c.Name, string(c.UID))
	if err != nil {
		return err
	}
	err = tx.execOn(set, `
		DELETE FROM pulls WHERE image = ? AND name = ? AND (namespace, secret, uid) IN (
			SELECT namespace, secret, uid FROM pulls WHERE image = ? AND name = ? AND NOT (namespace = ? AND secret = ?)
			ORDER BY random() LIMIT -1 OFFSET ?)`,
		image, name, image, name, c.Namespace, c.Name, maxPullSources-1)
	return err
}

// DeletePulls durably removes the pulls of images.
func (s *Store) DeletePulls(ctx context.Context, images []string) error {
	images = slices.DeleteFunc(slices.Clone(images), func(id string) bool { return id == "" })
	if len(images) == 0 {
		return nil
	}
	err := s.commit(ctx, func(tx *transaction) error {
		for _, id := range images {
			if err := tx.execOn(textRows("image", id), "DELETE FROM pulls WHERE image = ?", id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the pulls of images: %w", err)
	}
	return nil
}

// PullsOf returns the pulls of an image. The result is empty if the image was not pulled. Each start of a container needs it, so the
// results stay in memory until a row changes. The caller must not change the result.
func (s *Store) PullsOf(ctx context.Context, image string) ([]Pull, error) {
	list, found, version := s.pullCache.get(image)
	if found {
		return list, nil
	}
	list, err := s.readPulls(ctx, "WHERE image = ? AND image != ''", image)
	if err == nil {
		s.pullCache.put(image, list, version)
	}
	return list, err
}

// maxCachedPulls is the maximum number of images in a pullCache.
const maxCachedPulls = 64

// A pullCache contains results of PullsOf. The zero value is ready for use.
type pullCache struct {
	mu      sync.Mutex
	version int               // number of calls of clear
	pulls   map[string][]Pull // by image
}

// get returns the pulls of an image, and the version that put needs. The caller must not change the pulls.
func (c *pullCache) get(image string) (list []Pull, found bool, version int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, found = c.pulls[image]
	return list, found, c.version
}

// put adds the pulls of an image that were read after the call of get that returned the version. It does nothing if rows have changed
// since.
func (c *pullCache) put(image string, list []Pull, version int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version == c.version && len(c.pulls) < maxCachedPulls {
		if c.pulls == nil {
			c.pulls = map[string][]Pull{}
		}
		c.pulls[image] = list
	}
}

// clear is called after a row has changed, and before the change is acknowledged.
func (c *pullCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.pulls = nil
}

// PulledImages returns the IDs of all images that were pulled.
func (s *Store) PulledImages(ctx context.Context) ([]string, error) {
	list, err := s.readPulls(ctx, "WHERE image != ''")
	var ids []string
	for _, p := range list {
		ids = append(ids, p.Image)
	}
	return slices.Compact(ids), err
}

// BegunPulls returns the pulls that have begun, and for which PutPull was not called.
func (s *Store) BegunPulls(ctx context.Context) ([]BegunPull, error) {
	list, err := s.readPulls(ctx, "WHERE image = ''")
	var begun []BegunPull
	for _, p := range list {
		begun = append(begun, BegunPull{Ref: p.Name, Was: string(p.Source.UID)})
	}
	return begun, err
}

func (s *Store) readPulls(ctx context.Context, where string, args ...any) ([]Pull, error) {
	var list []Pull
	err := s.query(ctx, func() { list = nil }, func(rows *sql.Rows) error {
		var p Pull
		var uid string
		if err := rows.Scan(&p.Image, &p.Name, &p.Source.Namespace, &p.Source.Name, &uid, &p.Source.Hash); err != nil {
			return err
		}
		p.Source.UID = types.UID(uid)
		if name, isAccount := strings.CutPrefix(p.Source.Name, accountPrefix); isAccount {
			p.Source.Kind, p.Source.Name, p.Source.Hash = keyring.ServiceAccount, name, nil
		} else if name != "" {
			p.Source.Kind = keyring.Secret
		}
		list = append(list, p)
		return nil
	}, "SELECT image, name, namespace, secret, uid, hash FROM pulls "+where+" ORDER BY image, name, namespace, secret, uid", args...)
	if err != nil {
		return nil, fmt.Errorf("read the pulls of images: %w", err)
	}
	return list, nil
}
