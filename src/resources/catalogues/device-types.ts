/** The entries of `/types/`, suggestions in binary order (reference/resources.md#catalogues). */
export const deviceTypes: readonly string[] = [
  // connectivity
  `access_point beacon edge_computer gateway lora_gateway modem protocol_converter repeater router
   satellite_terminal single_board_computer switch zigbee_coordinator`,
  // sensing and logging
  `data_logger multi_sensor sensor_node wireless_sensor`,
  // weather and environment
  `air_quality_station buoy flood_gauge lightning_detector noise_monitor radiation_monitor rain_gauge seismometer
   snow_gauge tide_gauge water_quality_station weather_station wildfire_detector`,
  // metering
  `electricity_meter gas_meter heat_cost_allocator heat_meter power_analyzer smart_meter smart_plug submeter
   water_meter`,
  // energy
  `battery_storage circuit_breaker ev_charger fuel_cell generator heat_pump solar_inverter solar_panel
   transformer_monitor ups wind_turbine`,
  // buildings
  `air_conditioner air_handling_unit air_purifier blind_controller boiler chiller dehumidifier elevator escalator
   fan_coil_unit humidifier light_switch lighting_controller radiator_valve room_controller smart_lamp thermostat
   vav_box ventilation_unit water_heater`,
  // safety and access
  `access_controller alarm_panel alarm_siren badge_reader camera door_lock gas_detector intercom leak_detector
   motion_detector panic_button people_counter smoke_detector thermal_camera turnstile`,
  // industry
  `barcode_scanner cnc_machine compressor conveyor crane flow_computer forklift frequency_converter hmi_panel
   industrial_robot machine_monitor motor_drive plc pump remote_terminal_unit rfid_reader scale
   silo_monitor tank_monitor valve_actuator vibration_monitor welding_machine`,
  // city
  `bike_station digital_sign manhole_monitor parking_sensor street_light traffic_counter traffic_light
   waste_container water_hydrant`,
  // transport and logistics
  `asset_tag cold_chain_logger container_tracker dash_camera drone fuel_monitor obd_dongle scooter tachograph
   telematics_unit tracker vehicle`,
  // farming
  `beehive_monitor feeding_station greenhouse_controller irrigation_controller livestock_collar milking_robot
   soil_probe tractor`,
  // health and personal
  `blood_pressure_monitor fall_detector glucose_meter infusion_pump medication_dispenser patient_monitor
   pulse_oximeter wearable`,
  // retail and home
  `coffee_machine freezer payment_terminal refrigerator vending_machine washing_machine`,
]
  .flatMap((words) => words.split(/\s+/))
  .sort();
