"""The rights of the platform in the account: the table, the roles made from it, and the page that shows it."""
