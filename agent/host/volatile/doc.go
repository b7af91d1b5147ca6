// Package volatile lets the agent start on a read-only disk (EROFS: a card that the kernel has set
// read-only, a machine that booted read-only). It mounts an overlay in memory over each agent
// directory on such a disk. Paths do not change, so the rest of the agent is not affected.
// that nobody else knows of it.
//
//	RUN/volatile            a tmpfs, bounded
//	  <dir>/disk            the directory as the disk has it
//	  <dir>/upper, work     of the overlay that is mounted over the directory
//	  <dir>/apart/<n>       of the tmpfs, mounted over directories in the overlay
//
// Apart are directories that contain the upper directories and layers of further overlays. An
// overlay cannot be the upper directory of another, and does not show the whiteouts of layers.
// Their small files are copied, and their subdirectories at the second level are symbolic links to
// the disk.
//
// A pod can fill the layer, but not the memory: writes then fail as on a full disk, and a pod's
// writes count as its memory. All changes are lost at the next boot, which shows the disk as it was
// when it failed. A changed file is copied into memory completely. The layer stays until the
// machine boots or Uncover is called, even if the disk becomes writable again, because the data on
// the disk is then older than the agent's state.
package volatile
