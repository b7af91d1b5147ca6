package bundle

// All calls of time.Sleep and all waits in this file are in synctest bubbles, whose clock advances at once.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
)

// firstSeed is the first of the seeds, some of which request a change while the node returns to an earlier configuration.
const firstSeed = 36

// TestSequences makes random sequences of bundles, reverts and losses of power, at any time of the trials. When nothing happens any more,
// the configuration and the pods must be those of the same bundle. The name of a failure contains the seed.
func TestSequences(t *testing.T) {
	build := newWorld(t)
	var files []string
	states := map[int64]string{0: "110 ", 1: "110 web"}
	for i := range int64(9) {
		n := i + 2
		pods := []string{fmt.Sprint("p", n)}
		config, change := "110", second(pods[0])
		if i%3 != 0 {
			config = fmt.Sprint(20 + i%4) // two of the bundles have equal configurations
			change = withKubelet(maxPods(int(20+i%4)), pods...)
		}
		files = append(files, build.bundle(n, change))
		states[n] = config + " " + strings.Join(append(pods, "web"), " ")
	}
	for seed := range uint64(10) {
		seed += firstSeed
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			m := newMachine(t, "")
			for i := range 9 {
				m.bad[fmt.Sprint("p", i+2)] = random.IntN(3) == 0
			}
			p := m.start(guard.Role{}).apply(build.bundle(1, nil))
			var steps []string
			for range 12 {
				step := ""
				switch random.IntN(4) {
				case 0, 1:
					file := random.IntN(len(files))
					_, err := apply(p.node, files[file], true)
					step = fmt.Sprint("apply ", file+2, ": ", err)
				case 2:
					_, err := p.node.Revert(t.Context())
					step = fmt.Sprint("revert: ", err)
				case 3:
					step = "power cut"
					select { // what the agent wanted is lost
					case <-p.end:
					default:
					}
					p.stop()
					p = p.start(guard.Role{})
				}
				steps = append(steps, step)
				wait := time.Duration(random.IntN(40)) * time.Second
				select {
				case err := <-p.end:
					if random.IntN(4) == 0 {
						p.stop()
						p = p.start(guard.Role{}) // the power is lost instead
						steps = append(steps, "power cut at the end")
						continue
					}
					p = p.next(err)
					steps = append(steps, "next")
				case <-time.After(wait):
				}
			}
			p = p.settle()
			number := int64(0)
			if c := p.node.now().Current; c != nil {
				number = c.Number
			}
			p.requireState(states[number], fmt.Sprintf("seed %d, bundle %d: %s", seed, number, strings.Join(steps, "; ")))
			p.stop()
		})
	}
}
