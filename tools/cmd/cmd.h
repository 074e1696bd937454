/* tools/cmd/cmd.h - the commands behind the table in main.c */
#ifndef TOOLS_CMD_CMD_H
#define TOOLS_CMD_CMD_H

struct cli;
struct err;

/* All as cli_command.run: an exit status, or a negative errno with @err to report. */
int cmd_put(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_cat(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_ls(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_checkout(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_mount(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_umount(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_sandbox(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_run(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_explain(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_diff(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_ctl(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_stat(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_du(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_fsck(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_gc(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_pull(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_push(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_pin(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_unpin(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_help(struct cli *cli, int argc, char **argv, struct err *err);
int cmd_internal_helper(struct cli *cli, int argc, char **argv, struct err *err);

#endif
