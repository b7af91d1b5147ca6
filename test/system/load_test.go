package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// underLoad calls f while the node is under load. One pod burns a CPU, another pod starts and ends repeatedly, and commands run in pod p1.
// The argument of f is a function that waits until all three have made progress since the call.
func underLoad(t *testing.T, s *System, f func(goesOn func())) {
	t.Helper()
	for _, pod := range []string{"burn", "come"} {
		file := filepath.Join(s.Dir, "payload", pod+".yaml")
		args := map[string]string{"burn": "burn", "come": "count, 1s"}[pod]
		if err := os.WriteFile(file,
			fmt.Appendf(nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: c, image: %q, imagePullPolicy: Never, args: [%s]}\n", pod, machine.Image, args), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const manifests = "/etc/kubernetes/manifests"
	s.Run("mkdir /root/load && : >/root/load/on && : >/root/load/came && : >/root/load/done && cp /payload/burn.yaml " + manifests)
	for _, loop := range []string{
		`cp /payload/come.yaml ` + manifests + `/
		until islet pods --no-headers 2>/dev/null | grep -q "^come.*Running" || [ ! -e /root/load/on ]; do sleep 0.05; done
		rm ` + manifests + `/come.yaml
		until pods=$(islet pods --no-headers 2>/dev/null) && ! echo "$pods" | grep -q "^come" || [ ! -e /root/load/on ]; do sleep 0.05; done
		echo >>/root/load/came`,
		`if [ "$(islet exec p1-edge -- /podtool cat /etc/hostname 2>/dev/null)" = p1-edge ]; then echo >>/root/load/done; else sleep 0.05; fi`,
	} {
		cmd := s.Command("sh", "-c", "while [ -e /root/load/on ]; do\n"+loop+"\ndone")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait() // the exit code does not matter
	}
	defer s.Run("rm -f /root/load/on " + manifests + "/burn.yaml")
	s.Await(`islet pods --no-headers | grep -q "^burn.*Running"`)
	goesOn := func() {
		t.Helper()
		s.Run("cd /root/load && wc -l <came >came.then && wc -l <done >done.then")
		s.Await("cd /root/load && [ $(wc -l <came) -gt $(cat came.then) ] && [ $(wc -l <done) -gt $(cat done.then) ]")
	}
	goesOn()
	f(goesOn)
}
