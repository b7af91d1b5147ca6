package process

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSelfStat checks that the memory fields are found for any program name. A truncated text must have none.
func TestSelfStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 4096 7 18446744073709551615 1\n"
	for text, want := range map[string]Self{
		"12 (islet)" + rest:      {Virtual: 4096, Resident: 7 * uint64(os.Getpagesize())},
		"12 (a) b ) 1 2)" + rest: {Virtual: 4096, Resident: 7 * uint64(os.Getpagesize())},
		"12 (islet) S 1 2":       {},
		"":                       {},
	} {
		var got Self
		if got.parseStat([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestReadSelf checks that no figure of this process is missing. An additional open file must increase the number of descriptors by one.
func TestReadSelf(t *testing.T) {
	before := ReadSelf()
	if before.CPU <= 0 || before.CPU > time.Since(time.Unix(0, 0)) || before.Virtual < before.Resident || before.Resident < 1<<20 ||
		before.MaxFiles == 0 || before.MaxVirtual == 0 {
		t.Errorf("%+v", before)
	}
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0) // without the descriptors that Go opens for polling
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if now := ReadSelf(); now.Files != before.Files+1 {
		t.Errorf("%d files are open, %d before another was", now.Files, before.Files)
	}
}
