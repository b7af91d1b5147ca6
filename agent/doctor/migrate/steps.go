package migrate

import (
	"slices"
	"strings"
)

// The steps are texts, because a text takes less space in the program than the calls that add these steps. A line "PHASE> TITLE" begins a
// step, and "PHASE< TITLE" a step of the way back. A line that begins with a tab is a command, and "(" begins the note of the step.
// "! KEY: TEXT" is a note about a difference. Names in braces are variables.
const (
	drainSteps = `
drain> move the node's pods to other nodes, from a machine with kubectl
	kubectl drain NODE --ignore-daemonsets --delete-emptydir-data
(leave this out if no other node can run the pods: they end when the runtime stops, and start again under islet
finish> let pods run on the node again
	kubectl uncordon NODE
finish< move the node's pods to other nodes, from a machine with kubectl
	kubectl drain NODE --ignore-daemonsets --delete-emptydir-data
(leave this out if no other node can run the pods
drain< let pods run on the node again
	kubectl uncordon NODE`

	kubeletStop = `
translate< restore the kubelet's settings
	! grep -qs islet /etc/crictl.yaml || rm /etc/crictl.yaml
	(cd /root/before-islet && find . ! -type d | tar -cf - -T -) | tar -xpf - -C /
	systemctl daemon-reload
stop> end the containers that the kubelet has left
	crictl --runtime-endpoint {endpoint} ps -q | xargs -r crictl --runtime-endpoint {endpoint} stop --timeout 30
	crictl --runtime-endpoint {endpoint} rmp --all --force
(rmp alone would kill them. The program crictl is in the package cri-tools`

	kubeletSocket = `
translate> name islet's own runtime in the kubelet's settings
	sed -i {sed} {files}
(with the former socket, islet would run its containers in the former runtime`

	kubeadmSteps = `
! seccomp: pods without a seccomp profile get the default one; --seccomp-default=false in KUBELET_EXTRA_ARGS switches this off
finish> tell kubeadm the new socket, from a machine with kubectl
	kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket=unix:///run/islet/cri.sock
(kubeadm upgrade and kubeadm reset read it
drain< tell kubeadm the former socket
	kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket={endpoint}`

	kubeletMove = `
stop> move the kubelet out of the way: islet installs a link of this name
	[ -e /root/before-islet/usr/local/bin/kubelet ] || { mkdir -p /root/before-islet/usr/local/bin && ` +
		`mv /usr/local/bin/kubelet /root/before-islet.new && mv /root/before-islet.new /root/before-islet/usr/local/bin/kubelet; }`

	// saveSteps copies a file under another name first, so that a copy is either complete or missing. A copy that exists stays.
	saveSteps = `
save> copy the settings of {what}
	(cd / && for f in {files}; do [ -e "/root/before-islet/$f" ] || { rm -rf /root/before-islet.new && ` +
		`cp -a "$f" /root/before-islet.new && ` +
		`mkdir -p "/root/before-islet/${f%/*}" && mv /root/before-islet.new "/root/before-islet/$f"; } || exit 1; done)
(a copy that exists stays, because later steps change the files: so the steps may be repeated`

	forgetSteps = `
save< put the copies of the settings aside, so that another move copies them again
	mv /root/before-islet /root/before-islet.$(date +%s)
(remove them once you need nothing of them`

	exportSteps = `
images> export the images, so that nothing is downloaded again
	mkdir -p /var/lib/islet/images
	{export}
({note}. If you repeat the steps and the archive is complete, leave this out
translate< remove the exported images, which the former program still has
	rm -f /var/lib/islet/images/{name}.tar`

	k3sStop = `
stop> end its containers; this also removes its interfaces and firewall rules, but no data
	{killall}
	! pgrep -af {shims}
(if the last command still lists shims, reboot: their containers would run beside those of islet. Once islet runs, reboot instead of ` +
		`running the script: it also unmounts and deletes the volumes of islet's pods
! k3s network policy: the agent enforces NetworkPolicies, islet does not: use a network add-on that does
! k3s flannel and kube-proxy: they run in the process of k3s: the cluster needs DaemonSets of both for nodes with islet
! k3s failSwapOn: k3s' kubelet starts with swap on: islet join sets failSwapOn: false, unless /etc/islet/kubelet.yaml has the field
! k3s evictionHard: k3s evicts pods below 5% of free disk, islet as a kubelet below 10% (nodefs) and 15% (imagefs): docs/from-k3s.md
! k3s servicelb: its pods (svclb-...) run on this node only after kube-proxy does
! k3s load balancer: the agent finds all servers, islet sends its requests to the one address with which it has joined`

	k3sIdentity = `
translate> make islet a node of the cluster, with the node's password in /etc/rancher/node/password
	./islet join --k3s {url} --token-file token{flags}
(the file has a token of the cluster, such as that of k3s token create: docs/from-k3s.md
check> give the Node the label of the DaemonSets of flannel and kube-proxy, from a machine with kubectl
	kubectl label node NODE islet.dev/node=true
(the DaemonSets of packaging/kustomize/k3s-network run only on Nodes with this label: docs/from-k3s.md
check< end the pods of these DaemonSets on this node, from a machine with kubectl
	kubectl label node NODE islet.dev/node-`

	k3sServer = `
! k3s server: islet is only a node: it does not replace the API server, etcd or the controllers of k3s. Migrate the agents, and keep ` +
		`this server; or write the pods of a single machine as manifests for islet`

	podmanNotes = `
! podman network: pods have addresses of islet's network, and find each other by host ports or addresses, not by names
! podman commands: podman ps does not show pods of islet: use islet pods, islet logs and islet exec`

	rootlessSteps = `
images> export the images of the user {user}, whose containers run without root
	sudo -iu {user} sh -c {export}
	mv {home}/podman.tar /var/lib/islet/images/{user}.tar
(only if you trust the user: these images replace images of other pods with the same names
translate< remove the exported images of the user {user}
	rm -f /var/lib/islet/images/{user}.tar`

	dockerSteps = `
images> write the containers as pods in /etc/kubernetes/manifests
	docker inspect NAME
(docs/standalone.md has a table for Compose files; islet check checks the manifests
stop> stop the containers: with live-restore they keep running when docker stops
	docker ps -q | xargs -r docker stop
! docker network: docker's rules drop forwarded packets (policy DROP of FORWARD) until the next boot without docker: reboot, or see ` +
		`islet doctor
! docker socket: programs that use /var/run/docker.sock, such as watchtower or portainer, do not work`

	commonSteps = `
install> install islet, which starts at once and at boot
	sh install.sh {option}islet-VERSION-linux-ARCH.tar.gz
(pods run again after this step
check> look at the node
	islet doctor
	islet status
	islet pods
(islet doctor names what the former program has left, such as interfaces and firewall rules; --fix removes the unused ones
install< end islet's pods and remove islet; data in hostPaths and claims stays
	systemctl stop {unit}
	islet cleanup
	sh install.sh uninstall islet-VERSION-linux-ARCH.tar.gz
(/var/lib/islet stays: remove it when you no longer need its claims and images`

	endSteps = `
install< end the pods of manifests in order
	mkdir -p /root/islet-manifests && mv {dir}/* /root/islet-manifests/
	islet wait --for=Deleted --all -A --timeout=2m
(the next step kills pods that still run, such as those of DaemonSets: islet cleanup does not wait for them`

	staticSteps = `
translate< put the static pods back
	mv /root/islet-manifests/* {dir}/`

	writeStep = `
save> translate the settings, and read the files
	./islet doctor --migrate --write=/root/for-islet
(leave this out if you have done it: the directory must be new or empty. The program islet is in the archive of a release`

	flagStep = `
translate> give these flags to islet
	{ echo; printf '%s\n' {line}; } >>/etc/default/islet
(a later line of the file is stronger than an earlier one{note}`

	// registerNote is added to the note of flagStep for flags whose effect depends on the Node.
	registerNote = `. On a Node that exists, --register-with-taints has no effect, and --node-labels sets only the labels about host ` +
		`name, OS, architecture, zone, region and instance type: the Node keeps its other labels and its taints. All of them have an ` +
		`effect if the Node is created again`
)

// The commands that export images. noDigests is the note about the images that the commands leave out.
const (
	podmanExport = "podman save --multi-image-archive -o " + inbox +
		"/{name}.tar $(podman images --format '{{.Repository}}:{{.Tag}}' | grep -v -e '<none>' -e /podman-pause:)"
	dockerExport = "docker save -o " + inbox + "/docker.tar $(docker images --format '{{.Repository}}:{{.Tag}}' | grep -v '<none>')"
	ctrExport    = "ctr -n k8s.io images export " + inbox + "/containerd.tar $(ctr -n k8s.io images ls -q | grep -v sha256:)"
	k3sExport    = "k3s ctr images export " + inbox + "/k3s.tar $(k3s ctr images ls -q | grep -v sha256:)"
	noDigests    = "images that have only a digest as their name are not exported, and are pulled again when a pod needs them. The " +
		"archive takes " +
		"as much space as the compressed images"
)

// exportImages adds the step that exports images while the former program still runs.
func (p *planner) exportImages(name, command, note string) {
	p.addSteps(exportSteps, "{export}", strings.ReplaceAll(command, "{name}", name), "{note}", note, "{name}", name)
}

// addSteps adds the steps and notes of a text. The variables are names and values, such as "{name}", "x". The values are inserted after the
// text was divided into lines.
func (p *planner) addSteps(text string, variables ...string) {
	r := strings.NewReplacer(variables...)
	var steps []Step
	var heads []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		last := len(steps) - 1
		switch rest := r.Replace(line[1:]); line[0] {
		case '\t':
			steps[last].Commands = append(steps[last].Commands, rest)
		case '(':
			steps[last].Note = rest
		case '!':
			key, what, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			p.differ("", key, what)
		default:
			i := strings.IndexAny(line, "<>")
			heads = append(heads, line[:i+1])
			steps = append(steps, Step{What: r.Replace(line[i+2:])})
		}
	}
	for i, head := range heads {
		p.addStep(head, steps[i])
	}
}

// addStep adds a step to a phase. The head is the name of the phase, and > for a step, or < for a step of the way back.
func (p *planner) addStep(head string, s Step) {
	at := slices.Index(phaseNames(), head[:len(head)-1])
	if strings.HasSuffix(head, "<") {
		p.back[at] = append(p.back[at], s)
		return
	}
	p.steps[at] = append(p.steps[at], s)
}

// phaseNames returns the phases of a migration in their order. In the phase save, the settings are copied and translated, while they are
// still in place. In the phase images, the former runtime still runs. The phase finish has the last steps in the cluster.
func phaseNames() []string {
	return []string{"save", "drain", "images", "stop", "translate", "install", "check", "finish"}
}

// phases is the number of phases.
const phases = 8

// lookup returns the text of a key in a table with a line "KEY: TEXT" for each key, or "".
func lookup(table, key string) string {
	_, rest, ok := strings.Cut(table, "\n"+key+": ")
	if !ok || key == "" {
		return ""
	}
	text, _, _ := strings.Cut(rest, "\n")
	return text
}
