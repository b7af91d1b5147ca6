// Package fleet contains the tests of the means to install many nodes: the Ansible role, the user-data of cloud-init and the container
// image of folder packaging. They run Debian's Ansible, cloud-init and podman in a system of package system.
//
//	packaging/ansible, cloud-init, container; archive of make dist --> system --> ansible-playbook, cloud-init, podman --> islet
package fleet
