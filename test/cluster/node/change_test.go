package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// TestImageChange checks that a container is replaced when its image changes. This must work with any restart policy. If the new image is
// missing, the container must wait for it.
func TestImageChange(t *testing.T) {
	c, _, ns := join(t)
	for _, policy := range []string{"Always", "Never"} {
		name := "p-" + map[string]string{"Always": "a", "Never": "n"}[policy]
		c.Apply(t, pod(ns, name, "restartPolicy: "+policy, "", "sleep"))
		before := c.AwaitReady(t, ns, name)[name]
		c.Kubectl(t, "-n", ns, "set", "image", "pod/"+name, "c=localhost/none:none")
		c.AwaitPod(t, ns, name, "to wait for the image", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses[0]
			return s.State.Waiting != nil && s.State.Waiting.Reason == "ErrImageNeverPull" && s.LastTerminationState.Terminated != nil &&
				p.Status.Phase == corev1.PodRunning
		})
		c.Kubectl(t, "-n", ns, "set", "image", "pod/"+name, "c="+machine.Image)
		after := c.AwaitPod(t, ns, name, "to run again", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].State.Running != nil })
		if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP || after.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("the status was %+v, and is %+v", before.Status, after.Status)
		}
	}
}

// TestLessGrace checks that a second deletion with a shorter grace period ends the pod earlier.
func TestLessGrace(t *testing.T) {
	c, _, ns := join(t)
	c.Apply(t, pod(ns, "stubborn", "", "", "stubborn"))
	p := c.AwaitReady(t, ns, "stubborn")["stubborn"]
	c.Kubectl(t, "-n", ns, "delete", "pod", "stubborn", "--grace-period=3600", "--wait=false")
	c.AwaitPod(t, ns, "stubborn", "to be deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	began := time.Now()
	c.Kubectl(t, "-n", ns, "delete", "pod", "stubborn", "--grace-period=3", "--wait=false")
	c.AwaitGone(t, p)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the deletion took %v", took)
	}
}

// TestEndIsFinal checks that ended pods keep their status and do not run again after a restart of the node, even if the node has lost its
// state. A pod that is deleted before it ran must have the phase Failed.
func TestEndIsFinal(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, pod(ns, "done", "restartPolicy: OnFailure", "", "exit", "0")+pod(ns, "failed", "restartPolicy: Never", "", "exit", "3")+
		pod(ns, "late", "activeDeadlineSeconds: 2", "", "sleep")+pod(ns, "runs", "", "", "sleep"))
	phases := map[string]corev1.PodPhase{"done": corev1.PodSucceeded, "failed": corev1.PodFailed, "late": corev1.PodFailed}
	ended := map[string]*corev1.Pod{}
	for name, phase := range phases {
		ended[name] = c.AwaitPod(t, ns, name, "to end", func(p *corev1.Pod) bool { return p.Status.Phase == phase })
	}
	if late := ended["late"].Status; late.Reason != "DeadlineExceeded" || late.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("the status of the pod that exceeded its deadline is %+v", late)
	}
	before := c.AwaitReady(t, ns, "runs")["runs"]
	for _, forget := range []bool{false, true} {
		n.PowerOff()
		if forget {
			for _, dir := range []string{"state", "logs"} {
				if err := os.RemoveAll(filepath.Join(n.Disk, dir)); err != nil {
					t.Fatal(err)
				}
			}
			n.InstallImage()
		}
		n.Boot()
		n.Join()
		now := c.AwaitPod(t, ns, "runs", "to run again",
			func(p *corev1.Pod) bool { return container(p) != container(before) && cluster.PodReady(p) })
		for name, was := range ended {
			is := c.AwaitPod(t, ns, name, "to be there", func(*corev1.Pod) bool { return true })
			if is.Status.Phase != was.Status.Phase || is.Status.Reason != was.Status.Reason || container(is) != container(was) ||
				is.Status.ContainerStatuses[0].State.Terminated == nil {
				t.Errorf("%s was %+v, and is %+v", name, was.Status, is.Status)
			}
		}
		if got := len(n.ContainerProcesses()); got != 1 {
			t.Errorf("%d containers run", got)
		}
		before = now
	}

	held := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: held, namespace: %s, finalizers: [example.com/hold]}\n"+
		"spec: {containers: [{name: c, image: localhost/none:none, imagePullPolicy: Never}]}\n", ns)
	c.Apply(t, held)
	p := c.AwaitPod(t, ns, "held", "to miss its image", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 })
	c.Kubectl(t, "-n", ns, "delete", "pod", "held", "--wait=false")
	c.AwaitPod(t, ns, "held", "to have failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	c.Kubectl(t, "-n", ns, "patch", "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.AwaitGone(t, p)
}
