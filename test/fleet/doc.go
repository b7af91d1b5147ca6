// Package fleet tests the installation of many nodes: the Ansible role, the cloud-init user-data and the container image in folder
// packaging. The tests run Debian's Ansible, cloud-init and podman in a Debian system (package system).
//
//	packaging/ansible, cloud-init, container; archive of make dist --> system --> ansible-playbook, cloud-init, podman --> islet
package fleet
