package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// metaUses is the key under which the store has when images were used.
const metaUses = "image-uses"

// Meta keeps a value. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// A use is what is known of an image's use, in seconds since 1970.
type use struct {
	First int64 `json:"f,omitempty"` // 0: it was there before anybody looked
	Used  int64 `json:"u,omitempty"` // 0: never
	Now   bool  `json:"n,omitempty"` // it is in use, so Used has no meaning
}

// uses are the images by short, as they are stored.
type uses struct {
	Since  int64          `json:"since"`
	Images map[string]use `json:"images"`
}

// short is enough of an ID to tell images of a node apart.
func short(id string) string {
	if _, hex, ok := strings.Cut(id, ":"); ok {
		id = hex
	}
	return id[:min(len(id), 16)]
}

func loadUses(ctx context.Context, meta Meta, now time.Time) (*uses, error) {
	u := &uses{}
	text, known, err := meta.Meta(ctx, metaUses)
	if err != nil {
		return nil, fmt.Errorf("when images were used: %w", err)
	}
	if !known || json.Unmarshal([]byte(text), u) != nil || u.Since == 0 {
		return &uses{Since: now.Unix()}, nil // what cannot be read is as good as unknown
	}
	return u, nil
}

// settle has what was noted before the clock was set count from now on. It reports whether
// there was any.
func (u *uses) settle(now int64) (changed bool) {
	first := clock.First().Unix()
	if now < first {
		return false
	}
	right := func(at *int64) {
		if *at > 0 && *at < first {
			*at, changed = now, true
		}
	}
	right(&u.Since)
	for key, is := range u.Images {
		right(&is.First)
		right(&is.Used)
		u.Images[key] = is
	}
	return changed
}

// note takes what is there and what is needed now. It reports whether there is anything
// new to keep.
func (u *uses) note(images []Image, needs []Need, now time.Time) (changed bool) {
	first := now.Unix()
	changed = u.settle(first)
	if u.Images == nil {
		u.Images, first, changed = map[string]use{}, 0, true
	}
	needed, here := index(needs), map[string]bool{}
	for _, i := range images {
		key := short(i.ID)
		here[key] = true
		was, known := u.Images[key]
		is := was
		if !known {
			is.First = first
		}
		is.Now = false
		for name := range i.names() {
			for _, n := range needed[name] {
				is.Now = is.Now || !n.Over
			}
		}
		if is.Now {
			is.Used = 0
		} else if was.Now {
			is.Used = now.Unix()
		}
		if !known || is != was {
			u.Images[key], changed = is, true
		}
	}
	for key := range u.Images {
		if !here[key] {
			delete(u.Images, key)
			changed = true
		}
	}
	return changed
}

// fill sets when images came and were used.
func (u *uses) fill(images []Image, now time.Time) {
	for i := range images {
		use := u.Images[short(images[i].ID)]
		if use.First != 0 {
			images[i].First = time.Unix(use.First, 0)
		}
		switch {
		case use.Now:
			images[i].Used = now
		case use.Used != 0:
			images[i].Used = time.Unix(use.Used, 0)
		}
	}
}

func (u *uses) store(ctx context.Context, meta Meta) error {
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return meta.SetMeta(ctx, metaUses, string(text))
}
