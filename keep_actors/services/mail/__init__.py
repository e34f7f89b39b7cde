"""Mail: sent by SMTP, searched and read by IMAP. A Message-ID made of the key of a call finds its copy again."""

from keep_actors.services.mail.connector import Mail
from keep_actors.services.mail.settings import ImapServer, MailSettings, SmtpServer

__all__ = ["ImapServer", "Mail", "MailSettings", "SmtpServer"]
