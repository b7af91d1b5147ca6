package page

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/sorting"
)

// A historyFile keeps the readings of the last hour while the agent restarts. The file is in the run directory, which is in
// memory, so a reboot removes the file. It is a ring of records of a fixed size. A new reading replaces the oldest record, so the
// number of records is at most points. Each reading is written at once, so a killed agent loses no reading.
type historyFile struct {
	path   string // empty: nothing is kept
	next   int    // index of the record that the next reading replaces
	failed bool   // the last reading could not be written
	log    *slog.Logger
}

// recordSize is the size of a record in bytes. A record has 8 fields of 8 bytes.
const recordSize = 64

// load returns the readings of the hour before now, oldest first. It omits damaged records. It also omits records that are newer
// than now. Such records exist after the clock was set back.
func (f *historyFile) load(now time.Time) []Reading {
	if f.path == "" {
		return nil
	}
	b, err := regular.Read(f.path, points*recordSize)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn("cannot read the status page's history of the last hour; it begins anew", "error", err)
			_ = os.Remove(f.path) // if this fails, store reports the error
		}
		return nil
	}
	var out []Reading
	newest := time.Time{}
	for i := 0; (i+1)*recordSize <= len(b); i++ {
		r, ok := decodeReading(b[i*recordSize:])
		if !ok || r.At.After(now) || now.Sub(r.At) > points*Interval {
			continue
		}
		if r.At.After(newest) {
			newest, f.next = r.At, (i+1)%points
		}
		out = append(out, r)
	}
	sorting.StableBy(out, func(a, b Reading) int { return a.At.Compare(b.At) })
	return out
}

// store writes a reading in place of the oldest record. It logs the first of consecutive errors.
func (f *historyFile) store(r Reading) {
	if f.path == "" {
		return
	}
	err := f.write(r)
	if err != nil && !f.failed {
		f.log.Warn("cannot write the status page's history of the last hour; a restart of the agent loses it", "error", err)
	}
	f.failed = err != nil
}

func (f *historyFile) write(r Reading) error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(encodeReading(r), int64(f.next)*recordSize)
	if err = cmp.Or(err, file.Close()); err == nil {
		f.next = (f.next + 1) % points
	}
	return err
}

func encodeReading(r Reading) []byte {
	b := make([]byte, 0, recordSize)
	for _, v := range []uint64{uint64(r.At.UnixNano()), math.Float64bits(r.Cores), r.Memory, r.Disk, r.Received, r.Sent,
		math.Float64bits(r.ReceivedBy), math.Float64bits(r.SentBy)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// decodeReading decodes a record. It returns false if the values of the record are not plausible.
func decodeReading(b []byte) (r Reading, ok bool) {
	var v [recordSize / 8]uint64
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	r = Reading{At: time.Unix(0, int64(v[0])), Cores: math.Float64frombits(v[1]), Memory: v[2], Disk: v[3], Received: v[4], Sent: v[5],
		ReceivedBy: math.Float64frombits(v[6]), SentBy: math.Float64frombits(v[7])}
	for _, f := range []float64{r.Cores, r.ReceivedBy, r.SentBy} {
		if !(f >= 0 && f < 1e15) { // also false for NaN
			return r, false
		}
	}
	return r, true
}
