package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestBundlePods checks that the API server shows the pods of a bundle as mirror pods, whose names contain the name of the node, that
// kubectl finds their logs, and that they go when another bundle replaces the bundle.
func TestBundlePods(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	ns := c.Namespace(t)
	image, err := os.ReadFile(machine.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	n.Write("kiosk/images/podtool.tar", string(image))
	n.Write("kiosk/bundle.yaml", "apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: 1\n")
	key := strings.TrimSpace(n.Islet("bundle", "keys", "new", n.Disk+"/anna.key"))
	n.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n"+
		"bundle: {keys: [%q], healthyFor: 1s, deadline: 2m}\n", n.Disk, key))
	n.Join()
	apply := func(number int, pods ...string) {
		t.Helper()
		if err := os.RemoveAll(n.Disk + "/kiosk/manifests"); err != nil {
			t.Fatal(err)
		}
		for _, name := range pods {
			n.Write("kiosk/manifests/"+name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\n"+
				"spec: {containers: [{name: c, image: %q, args: [count, 1s]}]}\n", name, ns, machine.Image))
		}
		file := fmt.Sprintf("%s/kiosk-%d.tar", n.Disk, number)
		n.Islet("bundle", "build", n.Disk+"/kiosk", "-o", file, "--number", fmt.Sprint(number))
		n.Islet("bundle", "sign", file, "--key", n.Disk+"/anna.key")
		if out := n.Islet("bundle", "apply", "--wait", file); !strings.Contains(out, fmt.Sprintf("kiosk number %d is in use", number)) {
			t.Error(out)
		}
	}
	apply(1, "web", "stays")
	web := c.AwaitPod(t, ns, "web."+n.Name, "to be ready", cluster.PodReady)
	stays := c.AwaitPod(t, ns, "stays."+n.Name, "to be ready", cluster.PodReady)
	for _, p := range []*corev1.Pod{web, stays} {
		if p.Annotations[corev1.MirrorPodAnnotationKey] == "" || p.Annotations["kubernetes.io/config.source"] != "bundle" ||
			len(p.OwnerReferences) != 1 || p.OwnerReferences[0].Name != n.Name || p.Spec.NodeName != n.Name {
			t.Errorf("%+v", p.ObjectMeta)
		}
	}
	if out := c.Kubectl(t, "logs", "-n", ns, web.Name); !strings.Contains(out, "1") {
		t.Errorf("the logs of a mirror pod are %q", out)
	}
	apply(2, "stays", "new")
	c.AwaitPod(t, ns, "new."+n.Name, "to be ready", cluster.PodReady)
	c.AwaitGone(t, web)
	if now := c.AwaitPod(t, ns, "stays."+n.Name, "to be ready", cluster.PodReady); now.UID != stays.UID || container(now) != container(stays) {
		t.Errorf("a pod of both bundles was replaced: %s, before %s", container(now), container(stays))
	}
}
