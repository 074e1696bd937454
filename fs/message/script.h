/* fs/message/script.h - a Command as a script that runs it */
#ifndef FS_MESSAGE_SCRIPT_H
#define FS_MESSAGE_SCRIPT_H

struct buf;
struct cas_command;
struct cas_digest;

/*
 * Append to @out a script for sh that is to be started in the input root of an action: it goes
 * to the working directory and becomes the command, with its arguments and exactly its
 * environment, byte for byte. @digest names the Command in a comment. -ENOMEM.
 */
int fs_command_script(const struct cas_command *command, const struct cas_digest *digest,
		      struct buf *out);

#endif
