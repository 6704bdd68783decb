# frozen_string_literal: true

require "fileutils"
require "securerandom"

# Prepares a fresh checkout at the first boot, so that one command starts the application. If a
# server starts several processes at a time, one of them prepares the checkout and the others wait.
module FirstBoot
  module_function

  # The secret in the file at `path`, made if it is not there.
  def secret(path)
    alone(path) do |file|
      file.write(SecureRandom.hex(64)) if file.size.zero?
      file.rewind
      file.read
    end
  end

  # Tables and their first rows. The connection is given back: processes that are forked later must
  # not share it.
  def prepare_database
    alone(Rails.root.join("tmp/first_boot.lock")) do
      unless ActiveRecord::Base.connection.table_exists?("stops")
        ActiveRecord::Schema.verbose = false
        load Rails.root.join("db/schema.rb")
        load Rails.root.join("db/seeds.rb")
      end
    end
  ensure
    ActiveRecord::Base.connection_handler.clear_all_connections!
  end

  # Yields the open file at `path` while no other process has it.
  def alone(path)
    FileUtils.mkdir_p(File.dirname(path))
    File.open(path, File::RDWR | File::CREAT, 0o600) do |file|
      file.flock(File::LOCK_EX)
      yield file
    end
  end
end
