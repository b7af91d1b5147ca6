package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// metaUses is the key under which the uses are stored.
const metaUses = "image-uses"

// Meta stores values by key. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// An imageUse records the time at which an image was used, in seconds since 1970.
type imageUse struct {
	First int64 `json:"f,omitempty"` // 0 if the image existed before uses were recorded
	Used  int64 `json:"u,omitempty"` // 0 means never
	Now   bool  `json:"n,omitempty"` // the image is in use now; then Used is not set
}

// storedUses contains the stored uses by shortID.
type storedUses struct {
	Since  int64               `json:"since"`
	Images map[string]imageUse `json:"images"`

	aheadSince time.Time // when this process first saw stored times in the future; zero if there are none
}

// settleTime is how long stored times must be in the future before they are replaced. After a boot, the clock may be behind until it is
// synchronized. If the times of that clock replaced the stored ones, all unused images would be too old as soon as the clock is right.
const settleTime = time.Hour

// unsyncedSettleTime replaces settleTime while the clock is not synchronized. A node without a network may be behind for as long.
const unsyncedSettleTime = 7 * 24 * time.Hour

// shortID returns a prefix of an image ID that is unique on the node.
func shortID(id string) string {
	if _, hex, ok := strings.Cut(id, ":"); ok {
		id = hex
	}
	return id[:min(len(id), 16)]
}

func loadUses(ctx context.Context, meta Meta, now time.Time) (*storedUses, error) {
	u := &storedUses{}
	text, known, err := meta.Meta(ctx, metaUses)
	if err != nil {
		return nil, fmt.Errorf("read the uses of images: %w", err)
	}
	if !known || json.Unmarshal([]byte(text), u) != nil || u.Since == 0 {
		return &storedUses{Since: now.Unix()}, nil // a value that cannot be read is treated as missing
	}
	return u, nil
}

// fixClock replaces the times that were recorded before the clock was set, and those that have been in the future for
// settleTime, because the clock was ahead. The parameter now is the time that replaces them. It reports whether it has
// replaced any.
func (u *storedUses) fixClock(now int64, synced bool) (changed bool) {
	first := clock.EarliestTime().Unix()
	if now < first {
		return false
	}
	after := unsyncedSettleTime
	if synced {
		after = settleTime
	}
	ahead, settled := false, u.isAheadFor(after)
	right := func(at *int64) {
		ahead = ahead || *at > now
		if *at > 0 && *at < first || settled && *at > now {
			*at, changed = now, true
		}
	}
	right(&u.Since)
	for key, is := range u.Images {
		right(&is.First)
		right(&is.Used)
		u.Images[key] = is
	}
	if !ahead {
		u.aheadSince = time.Time{}
	} else if u.aheadSince.IsZero() {
		u.aheadSince = time.Now()
	}
	return changed
}

// isAheadFor reports whether stored times have been in the future for the given time.
func (u *storedUses) isAheadFor(d time.Duration) bool {
	return !u.aheadSince.IsZero() && time.Since(u.aheadSince) >= d
}

// update records the images that exist now, and whether they are needed. It reports whether anything has changed.
func (u *storedUses) update(images []Image, needs []Need, now time.Time, synced bool) (changed bool) {
	first := now.Unix()
	changed = u.fixClock(first, synced)
	if u.Images == nil {
		u.Images, first, changed = map[string]imageUse{}, 0, true
	}
	needed, here := index(needs), map[string]bool{}
	for _, i := range images {
		key := shortID(i.ID)
		here[key] = true
		was, known := u.Images[key]
		is := was
		if !known {
			is.First = first
		}
		is.Now = false
		for name := range i.eachName() {
			for _, n := range needed[name] {
				is.Now = is.Now || !n.Ended
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

// setTimes sets First and Used of the images. An image whose First has been in the future for settleTime was pulled at least settleTime
// ago. Its age then does not prevent its removal when the disk is full.
func (u *storedUses) setTimes(images []Image, now time.Time) {
	for i := range images {
		use := u.Images[shortID(images[i].ID)]
		if use.First != 0 {
			images[i].First = time.Unix(use.First, 0)
			if images[i].First.After(now) && u.isAheadFor(settleTime) {
				images[i].First = now.Add(-settleTime)
			}
		}
		switch {
		case use.Now:
			images[i].Used = now
		case use.Used != 0:
			images[i].Used = time.Unix(use.Used, 0)
		}
	}
}

func (u *storedUses) store(ctx context.Context, meta Meta) error {
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return meta.SetMeta(ctx, metaUses, string(text))
}
