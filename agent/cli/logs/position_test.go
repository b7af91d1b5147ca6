package logs

import (
	"strings"
	"testing"
)

// TestPosition checks that the output is the whole log without duplicates, regardless of where the connection to the agent breaks.
func TestPosition(t *testing.T) {
	log := "t1 a\nt1 a\nt2 long line\nt2 \nt3 end\n"
	for _, stamps := range []bool{false, true} {
		want := log
		if !stamps {
			want = "a\na\nlong line\n\nend\n"
		}
		for cut := range len(log) {
			for size := 1; size < 9; size++ {
				var out strings.Builder
				p := &position{w: &out, printTimes: stamps}
				feed := func(s string) {
					for len(s) > 0 {
						n := min(size, len(s))
						p.Write([]byte(s[:n]))
						s = s[n:]
					}
				}
				feed(log[:cut])
				p.resume()
				feed(log[strings.Index(log, p.last):])
				if out.String() != want {
					t.Fatalf("cut after %q: %q", log[:cut], out.String())
				}
			}
		}
	}
	var out strings.Builder
	p := &position{w: &out}
	p.Write([]byte("t1 half of"))
	p.resume()
	if _, err := p.Write([]byte("t2 next\n")); err != errMissed || out.String() != "half of" { // the last printed line was rotated away
		t.Errorf("got %q, %v", out.String(), err)
	}
}
