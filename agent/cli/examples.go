package cli

import (
	"bytes"
	"fmt"
	"io"
)

// An example is a use of a command. It is part of the help and of the manual page.
type example struct{ what, line string }

// examples returns the examples of the commands by their path.
func examples() map[string][]example {
	return map[string][]example{
		"status": {{"Show the node and what needs attention", "islet status"}, {"Repeat it until interrupted", "islet status -w"},
			{"Print the state for a script", "islet status -o json"}},
		"pods": {{"List the pods of all namespaces with their addresses", "islet pods -A -o wide"},
			{"List the pods with a label, and then each change", "islet pods -l app=web -w"}},
		"describe": {{"Show a pod with its events", "islet describe web"},
			{"Show which keys a Secret has and which pods use it", "islet describe secret wifi"}},
		"logs": {{"Print the last 20 lines of a pod's log, and follow it", "islet logs -f --tail=20 web"},
			{"Print the log of the container before its last restart", "islet logs --previous web"},
			{"Follow all pods with a label; each line begins with the pod's name", "islet logs -f -l app=web"},
			{"Print the last ten minutes of two pods", "islet logs --since=10m web database"}},
		"exec": {{"Open a shell in a container", "islet exec -it web -- sh"},
			{"Run a command in a certain container", "islet exec web -c sidecar -- cat /etc/hosts"}},
		"attach": {{"Show the output of a container's process, and send it standard input", "islet attach -i web"}},
		"port-forward": {{"Reach port 80 of a pod as port 8080 of this machine", "islet port-forward web 8080:80"},
			{"Let the system choose the local port", "islet port-forward web :80"}},
		"cp": {{"Copy a directory from a container", "islet cp web:/var/log/nginx ./logs"},
			{"Copy a file to a container of another namespace", "islet cp site.conf edge/web:/etc/nginx/"}},
		"wait": {{"Wait until a pod is ready, for at most two minutes", "islet wait --for=Ready --timeout=2m web"},
			{"Wait until every pod with a label is ready", "islet wait -l app=web"},
			{"Wait until a pod has completed", "islet wait --for=jsonpath='{.status.phase}'=Succeeded job"},
			{"Wait until a pod is deleted", "islet wait --for=Deleted web"}},
		"check": {{"Check a manifest on any machine", "islet check web.yaml"},
			{"Check all manifests of a node in a script; a warning is a failure too",
				"islet check --strict -o json /etc/kubernetes/manifests"}},
		"join": {{"Join a k3s cluster with the token of its server", "islet join --k3s https://server.example:6443 --token-file token"},
			{"Choose the name and the address of the node",
				"islet join --k3s https://server.example:6443 --token-file token --node-name roof-7 --node-ip 192.0.2.7"}},
		"support": {{"Write a file without secrets that you can send", "islet support node.tar.gz"}},
		"debug": {{"Open a shell of another image in a running pod", "islet debug -it web --image=docker.io/library/busybox:1.37"},
			{"Also see the processes of the container app",
				"islet debug -it web --image=docker.io/library/busybox:1.37 --target=app -- sh"}},
		"restart": {{"Restart the containers of a pod, and wait until it is ready", "islet restart web"}},
		"events": {{"Show the warnings of the node and its pods", "islet events --warnings"},
			{"Show the events of a pod, and then each new one", "islet events web -w"}},
		"top": {{"Show the pods that use most memory first", "islet top -A --sort-by=memory"},
			{"Show the node with its sensors", "islet top node"},
			{"Show the processes of a pod's containers", "islet top processes web"}},
		"images ls": {{"List the images with their age and the pods that use them", "islet images ls"},
			{"List only the names", "islet images ls -q"}},
		"images import": {{"Import an archive that docker save or a build tool has written", "islet images import web.tar.zst"},
			{"Import from standard input", "islet images import -"}},
		"images pull":  {{"Pull an image before a pod needs it", "islet images pull docker.io/library/nginx:1.29"}},
		"images prune": {{"Show what would be removed", "islet images prune --dry-run"}},
		"images rm":    {{"Remove a name of an image", "islet images rm localhost/web:1"}},
		"system df": {{"Show what uses the disk, and what can be freed", "islet system df"},
			{"Print the figures for a script", "islet system df -o json"}},
		"devices": {{"Show the devices that containers can request", "islet devices"},
			{"Show every device of the machine", "islet devices --all"}},
		"apply": {{"Apply a manifest, and wait until its pods are ready", "islet apply --wait -f web.yaml"},
			{"Apply all manifests of a directory", "islet apply -f manifests/"},
			{"Only check a manifest", "islet apply --dry-run -f web.yaml"}},
		"delete": {{"Delete a pod", "islet delete web"}, {"Delete everything of a manifest", "islet delete -f web.yaml"},
			{"Delete all applied pods with a label", "islet delete -l app=web"},
			{"Delete a claim with its data", "islet delete pvc data --delete-data"}},
		"objects":     {{"List the Secrets of all namespaces", "islet objects secret -A"}},
		"config show": {{"Show the configuration in use, with its documents", "islet config show -o yaml"}},
		"config apply": {{"Try a configuration", "islet config apply new.yaml"},
			{"Only check it", "islet config apply --dry-run new.yaml"}},
		"config revert":  {{"Return to the previous good configuration", "islet config revert"}},
		"config history": {{"List the trials", "islet config history"}},
		"update": {{"Try another version", "islet update islet-0.2.0-linux-arm64.tar.gz"},
			{"Return to the version before the last update, without a download", "islet update --back"},
			{"Only download, check and test it", "islet update --dry-run https://example.com/islet-0.2.0-linux-arm64.tar.gz"}},
		"bundle build": {{"Make a bundle of a directory", "islet bundle build kiosk -o kiosk.tar"},
			{"Make one on a stick, with the number of a CI build", "islet bundle build kiosk -o /media/stick/kiosk/ --number 42"},
			{"Make one in a registry", "islet bundle build kiosk -o oci://registry.example.com/kiosk:42"}},
		"bundle lock": {{"Take images from registries, by digest", "islet bundle lock kiosk"},
			{"Take the images that the tags name now", "islet bundle lock kiosk --update"}},
		"update status":    {{"Show the ring of this node, and what it waits for", "islet update status"}},
		"bundle sign":      {{"Sign a bundle", "islet bundle sign kiosk.tar --key bundle.key"}},
		"bundle keys new":  {{"Make a key", "islet bundle keys new bundle.key"}},
		"bundle keys show": {{"Print the public key for bundle.keys", "islet bundle keys show bundle.key"}},
		"bundle keys add":  {{"Collect the public keys that may sign", "islet bundle keys add bundle.keys first.key second.key"}},
		"bundle show": {{"Show a bundle", "islet bundle show kiosk.tar"},
			{"Print it for a script", "islet bundle show kiosk.tar -o json"}},
		"bundle verify": {{"Check a bundle and its signatures", "islet bundle verify kiosk.tar --keys bundle.keys --threshold 2"},
			{"Check whether a node can use it", "islet bundle verify kiosk.tar --for node.yaml"}},
		"bundle apply": {{"Run a bundle, and wait until its pods are Ready", "islet bundle apply kiosk.tar --wait"},
			{"Fetch what the node lacks of a bundle, and run it", "islet bundle apply https://bundles.example.com/kiosk-42.tar"},
			{"Run a bundle with a lower number", "islet bundle apply /media/stick/kiosk --older"}},
		"bundle status": {{"Show which bundle is in use, and the result of the last trial", "islet bundle status"},
			{"Print the signed state of the node", "islet bundle status -o json"}},
		"bundle collect": {{"Show the states that nodes have written to a stick", "islet bundle collect /media/stick/islet-*.json"}},
		"bundle revert":  {{"Return to the previous bundle", "islet bundle revert"}},
		"bundle diff":    {{"Show what a new bundle changes", "islet bundle diff kiosk-41.tar kiosk-42.tar"}},
		"bundle node":    {{"Describe this node for islet bundle verify", "islet bundle node"}},
		"bundle seal":    {{"Encrypt a Secret for the nodes of a list", "islet bundle seal wifi.yaml --to nodes.txt"}},
		"accept":         {{"End the held pods that islet status reports", "islet accept"}},
		"takeover":       {{"Make this machine the owner of the node's name", "islet takeover"}},
		"shutdown":       {{"End all pods before maintenance", "islet shutdown"}, {"Start them again", "islet shutdown --cancel"}},
		"clock":          {{"Show the recorded times", "islet clock"}, {"Discard them after the clock was wrong", "islet clock reset"}},
		"key recipient":  {{"Print the key that islet bundle seal --to takes", "islet key recipient"}},
		"key status":     {{"Show whether the key of the database is sealed to a TPM", "islet key status"}},
		"key seal": {{"Seal the key to the TPM of this machine", "islet key seal"},
			{"Seal it to the TPM and the secure boot state", "islet key seal --pcrs=7"},
			{"Seal it again after an update of the firmware", "islet key seal --pcrs=7 --recovery"}},
		"key unseal": {{"Make the key a plain file again", "islet key unseal"},
			{"Do so without the TPM", "islet key unseal --recovery"}},
		"backup": {{"Make a key in the office, and print its public key", "islet backup --new-key=office.key"},
			{"Back up the node, sealed to that key", "islet backup /media/stick/edge-1.backup --to=age1..."},
			{"Write the backup to the standard output, such as over ssh", "islet backup - --to=age1..."},
			{"Check a backup", "islet backup --verify edge-1.backup --key=office.key"}},
		"restore": {{"Check whether a backup fits this board", "islet restore edge-1.backup --key=office.key --dry-run"},
			{"Make this board the node of the backup", "islet restore edge-1.backup --key=office.key"},
			{"Also open a key that was sealed to the TPM of the old board", "islet restore edge-1.backup --key=office.key --recovery"}},
		"setup": {{"Apply the file of the boot partition now", "islet setup"},
			{"Make this machine a node with another file", "islet setup /root/islet.yaml"}},
		"doctor": {{"Check the host and show how to repair each problem", "islet doctor"},
			{"List the leftovers of another kubelet that would be removed", "islet doctor --fix --dry-run"},
			{"Show how to move this host to islet, and write its settings for islet", "islet doctor --migrate --write=/root/for-islet"}},
		"agent":      {{"Run the agent with the pods of a directory", "islet agent --pod-manifest-path=/etc/kubernetes/manifests"}},
		"cleanup":    {{"Remove everything that a stopped agent has left on the host", "islet cleanup"}},
		"version":    {{"Print only the version of this program", "islet version --client"}},
		"completion": {{"Complete commands and pods in bash", "islet completion bash"}},
		"help":       {{"Show the help of a command", "islet help logs"}},
	}
}

// printExamples writes the examples of a command for its help.
func printExamples(w io.Writer, path []string) {
	list := examples()[joinPath(path)]
	if len(list) == 0 {
		return
	}
	fmt.Fprint(w, "\nExamples:\n")
	for _, e := range list {
		fmt.Fprintf(w, "  # %s\n  %s\n", e.what, e.line)
	}
}

// manExamples returns the examples of a command in troff.
func manExamples(path []string) string {
	var b bytes.Buffer
	for _, e := range examples()[joinPath(path)] {
		fmt.Fprintf(&b, ".PP\n%s:\n.PP\n.RS\n.EX\n%s\n.EE\n.RE\n", escapeTroff(e.what), escapeTroff(e.line))
	}
	return b.String()
}
